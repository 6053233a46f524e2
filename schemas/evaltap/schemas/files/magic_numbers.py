"""Recognizes SQLite, DuckDB and gzip files by their first bytes, and says which command takes them."""

from pathlib import Path
from typing import Final

HEAD_BYTES: Final = 16
"""How many of a file's first bytes the functions need."""


def is_sqlite(head: bytes) -> bool:
    """Return whether a file with these first bytes is an SQLite database, such as a local log."""
    return head.startswith(b"SQLite format 3\0")


def is_duckdb(head: bytes) -> bool:
    """Return whether a file with these first bytes is a DuckDB database, such as a store."""
    return head[8:12] == b"DUCK"


def binary_kind(head: bytes) -> str:
    """Return what a file with these first bytes is, with its article; empty if unknown."""
    if is_duckdb(head):
        return "a DuckDB file"
    if is_sqlite(head):
        return "a SQLite file, such as a local log"
    return "a gzip file" if head.startswith(b"\x1f\x8b") else ""


def log_instead(path: Path) -> str:
    """Return the message about an SQLite file where another kind of file is expected."""
    return (
        f"{path}: is a log or another SQLite file; land a log with `evaltap consume --log {path}`"
    )


def store_instead(path: Path) -> str:
    """Return the message about a DuckDB file where another kind of file is expected."""
    return f"{path}: is a DuckDB file; if it is a store, `evaltap ui {path}` shows it"
