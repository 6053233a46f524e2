"""The spool: a local log of this process in front of a broker, and those that others left behind.

A process owns its spool by a lock on a file beside it.  A spool whose lock is free belongs to a process
that has ended; whoever finds it sends the rest of it.  Nothing here talks to a broker.
"""

import fcntl
import os
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import IO

SPOOL_VARIABLE = "EVALTAP_SPOOL_DIR"


def spool_folder(name: str) -> Path:
    """Return the folder of the spools for a destination, made when absent (mode 0700).

    It lies below EVALTAP_SPOOL_DIR, or the user's state folder.  Raises OSError when it cannot be made.
    """
    given = os.environ.get(SPOOL_VARIABLE)
    state = os.environ.get("XDG_STATE_HOME") or str(Path.home() / ".local" / "state")
    folder = (Path(given) if given else Path(state) / "evaltap" / "spool") / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder


class Spool:
    """One spool file and the lock that says whose it is."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock

    @property
    def rejected_path(self) -> Path:
        """Where records go that the broker will never take."""
        return self.path.with_name(self.path.name + ".rejected")

    def release(self) -> None:
        """Give the spool up; what is in it will be sent by whoever finds it."""
        self._lock.close()

    def remove(self) -> None:
        """Delete the spool, all of it sent, and give it up."""
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        _lock_path(self.path).unlink(missing_ok=True)
        self._lock.close()


def new_spool(folder: Path) -> Spool:
    """Return a spool of this process's own."""
    path = folder / f"{os.getpid()}-{uuid.uuid4().hex[:12]}.log.db"
    spool = _claim(path)
    assert spool is not None, "nobody else knows this name"
    return spool


def orphans(folder: Path) -> Iterator[Spool]:
    """Yield the spools that no living process owns, each claimed."""
    for path in sorted(folder.glob("*.log.db")):
        spool = _claim(path)
        if spool is not None:
            yield spool


def _claim(path: Path) -> Spool | None:
    lock = _lock_path(path).open("ab")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        return None
    return Spool(path, lock)


def _lock_path(path: Path) -> Path:
    return path.with_name(path.name + ".lock")
