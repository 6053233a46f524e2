"""Track the database files that this process has open.

The lock that keeps other processes out of a file ends when this process closes *any* descriptor of it, no
matter who opened it.  So a file held here must not be opened a second time, neither to read its first bytes
nor by another `Store`.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeAlias

from evaltap.evaluator.store.errors import StoreHeldError

FileId: TypeAlias = tuple[int, int]

_held: set[FileId] = set()
_lock = threading.RLock()


def is_held_here(path: Path) -> bool:
    """Return whether this process has a database file open, under any path."""
    with _lock:
        return _id(path) in _held


@contextmanager
def not_held_here(path: Path) -> Iterator[None]:
    """Raise StoreHeldError if this process has the file open; no other thread opens one during the block."""
    with _lock:
        if is_held_here(path):
            raise StoreHeldError(
                f"{path}: this process has it open already; close that store first, or read through it"
            )
        yield


def hold(path: Path, before: FileId | None = None) -> FileId | None:
    """Note that a file is open, and that the file `before` no longer is."""
    with _lock:
        let_go(before)
        if (file := _id(path)) is not None:
            _held.add(file)
        return file


def let_go(file: FileId | None) -> None:
    """Note that a file is closed."""
    with _lock:
        if file is not None:
            _held.discard(file)


def _id(path: Path) -> FileId | None:
    if path == Path(":memory:"):  # whatever file has that name
        return None
    try:
        status = path.stat()
    except OSError:  # the file does not exist yet
        return None
    return status.st_dev, status.st_ino
