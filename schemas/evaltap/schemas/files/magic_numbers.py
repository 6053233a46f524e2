"""Recognizes SQLite, DuckDB and gzip files by their first bytes."""

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
