"""What the files of databases begin with, told without opening them as such."""

from typing import Final

HEAD_BYTES: Final = 16
"""How many of a file's first bytes are looked at."""


def is_sqlite(head: bytes) -> bool:
    """Tell whether a file that begins so is an SQLite database, as a local log is."""
    return head.startswith(b"SQLite format 3\0")


def is_duckdb(head: bytes) -> bool:
    """Tell whether a file that begins so is a DuckDB database, as a store is."""
    return head[8:12] == b"DUCK"
