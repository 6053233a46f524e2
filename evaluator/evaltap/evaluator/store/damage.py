"""Damage to a DuckDB file on disk, and how it is repaired or explained.

DuckDB replays its write-ahead log when it opens a file.  A log that was truncated or corrupted cannot be
replayed as a whole: it is set aside, and the part before the damage is kept.  Rows and offsets are lost
together, so the consumer reads the lost rows again from the log of the recorder.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

import duckdb

from evaltap.evaluator.store.errors import NoMemoryError, StorageError
from evaltap.schemas.files.private import private_file

_DAMAGE_AT = re.compile(r"entry at byte position (\d+)")
_DAMAGED = ("Corrupt database file", "Could not read enough bytes", "Corrupted", "corrupt")
_NO_MEMORY = ("Out of Memory", "failed to pin block", "failed to allocate")
_READ_ONLY = ("Read-only file system", "attached in read-only mode")
_NO_SPACE = ("No space left", "Could not write", "File too large")


def set_log_aside(path: Path, error: str, *, keep: bool) -> str | None:
    """Rename a damaged write-ahead log; return a notice for the user, None for other errors.

    With `keep`, the part before the damage is kept if the error states its position.
    """
    log = path.with_name(path.name + ".wal")
    if "replaying WAL" not in error or not log.exists():
        return None
    aside = _free_name(log)
    log.rename(aside)
    found = _DAMAGE_AT.search(error) if keep else None
    part = int(found[1]) if found else 0
    if part:
        with aside.open("rb") as whole, private_file(log) as file:
            file.write(whole.read(part))
    return (
        f"{path}: its write-ahead log is damaged and was set aside as {aside.name}; rows that were written"
        " last are gone, and their offsets with them: what came from a log lands again, what was scored"
        " from files must be scored again"
    )


@contextmanager
def translated(path: Path) -> Iterator[None]:
    """Convert DuckDB errors raised in the block to StorageError if disk or memory is the cause.

    An interrupt is a KeyboardInterrupt, whatever DuckDB calls it.
    """
    try:
        yield
    except RuntimeError as error:
        if str(error) != "Query interrupted":
            raise
        raise KeyboardInterrupt from error
    except duckdb.Error as error:
        if (problem := explained(error, path)) is None:
            raise
        raise problem from error


def explained(error: Exception, path: Path) -> StorageError | None:
    """Return the error to show to the user; None if neither disk nor memory is the cause."""
    text = str(error).splitlines()[0] if str(error) else ""
    if any(sign in text for sign in _READ_ONLY):
        return StorageError(read_only(path))
    if any(sign in text for sign in _NO_SPACE):
        return StorageError(
            f"{path}: cannot be written ({text}); make room and start again: what was written is kept, and"
            " the rest is still on the log or in the files"
        )
    if isinstance(error, duckdb.OutOfMemoryException) or any(sign in text for sign in _NO_MEMORY):
        return NoMemoryError(
            f"{path}: DuckDB had not enough memory ({text}); give it more, or smaller cases: what was"
            " written stays, and the rest is still where it came from"
        )
    if any(sign in text for sign in _DAMAGED):
        return StorageError(
            f"{path}: the database file is damaged ({text}); put a copy back, or move it and its .wal away"
            " and consume again: all that is still on the log lands and is scored again"
        )
    return None


def read_only(path: Path) -> str:
    """Return the message to the user of a file that would have to be written."""
    return (
        f"{path}: cannot be written: the file or its file system is read-only; name one that can be"
        " written, such as a copy"
    )


def _free_name(log: Path) -> Path:
    stamp = f"{datetime.now():%Y%m%dT%H%M%S}"
    aside = log.with_name(f"{log.name}.bad-{stamp}")
    number = 1
    while aside.exists():
        number += 1
        aside = log.with_name(f"{log.name}.bad-{stamp}-{number}")
    return aside
