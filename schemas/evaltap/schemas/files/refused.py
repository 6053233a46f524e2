"""Files that are not what a reader expects, and what to say of them: devices, databases, missing ones."""

import stat
from itertools import islice
from pathlib import Path
from typing import Final

from evaltap.schemas.errors import InputError
from evaltap.schemas.text import nearest


def refuse_device(path: Path) -> None:
    """Raise InputError for a device other than a terminal, such as `/dev/zero`; OSError without a file."""
    if not stat.S_ISCHR(path.stat().st_mode):
        return
    with path.open("rb", buffering=0) as device:
        if not device.isatty():
            raise InputError(f"{path}: is a device; expected a file")


def regular_files(folder: Path, pattern: str) -> list[Path]:
    """Return the files in a folder and below that match a pattern, sorted; pipes and devices are left out."""
    return sorted(path for path in folder.rglob(pattern) if path.is_file())


_NAMES = 1_000
"""Maximum number of names in a folder to compare."""


def no_such_file(path: Path, expected: str) -> str:
    """Return the message for a missing file, with a similar name or, if there is none, `expected`."""
    if path.exists() and not path.is_dir():
        return f"{path}: is a device or a pipe; {expected}"
    return f"{path}: no such file; {similar_file(path) or expected}"


def similar_file(path: Path) -> str:
    """Return a question suggesting a file with a similar name in the same folder, empty without one."""
    try:
        names = [one.name for one in islice(path.absolute().parent.iterdir(), _NAMES)]
    except OSError:
        return ""
    name = nearest(path.name, names)  # of whole paths, the folder alone would make all similar
    return f"did you mean '{path.with_name(name)}'?" if name else ""


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
