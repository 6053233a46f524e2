"""The spool: this process's local log in front of a broker, and those that ended processes left.

A process owns its spool by a lock on a file next to it. A spool whose lock is free belongs to an
ended process; the process that finds it sends the rest. Nothing here talks to a broker.

Windows has no `flock`. Without it a spool in use looks like one whose process has ended, so each process
sends only its own spools, and abandoned ones stay: `evaltap consume --log FILE` lands these local logs.
"""

import os
import sqlite3
import threading
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from evaltap.schemas.errors import InputError
from evaltap.schemas.log.folders import LOCATION_FILE, spool_path, topic_path
from evaltap.schemas.log.local import LocalLog, file_identity, is_damage, open_log, quarantine
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.record import WireRecord

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows

CURSOR = "kafka"
WINDOW_RECORDS = 500
WINDOW_BYTES = 8 << 20
MAX_PROBES = 100_000
"""Records probed one by one after a damaged page: a broken inner page hides a few thousand."""


def has_locks() -> bool:
    """Return whether the system supports file locks."""
    return fcntl is not None


def try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False when someone else holds the lock.

    Without file locks an exclusive lock is always granted, and a `shared` one, which probes for an
    owner, never.
    """
    if fcntl is None:
        return not shared
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


class Spool:
    """One spool file and the lock that marks its owner."""

    def __init__(self, path: Path, lock: IO[bytes]) -> None:
        self.path = path
        self._lock = lock

    @property
    def rejected_path(self) -> Path:
        """Where records go that the broker permanently refuses."""
        return self.path.with_name(self.path.name + ".rejected")

    def release(self) -> None:
        """Release the lock; a process that finds the spool sends the rest."""
        self._lock.close()

    def remove(self) -> None:
        """Delete the spool after everything is sent, and release it."""
        for ending in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + ending).unlink(missing_ok=True)
        # Close first: Windows cannot delete an open file. No one checks the lock of a deleted
        # spool.
        self._lock.close()
        lock_path(self.path).unlink(missing_ok=True)


def new_spool(folder: Path) -> Spool:
    """Create a spool for this process."""
    path = folder / f"{os.getpid()}-{uuid.uuid4().hex[:12]}.log.db"
    spool = _claim(path)
    assert spool is not None, "nobody else knows this name"
    return spool


def orphans(folder: Path) -> Iterator[Spool]:
    """Yield the spools without a living owner, oldest first, each locked.

    Yields none without file locks: a spool in use looks the same.
    """
    if not has_locks():
        return
    for path in sorted(folder.glob("*.log.db"), key=_written_at):
        if (spool := _claim(path)) is not None:
            yield spool


class SpoolReader:
    """Reads a spool for sending: windows of records, and a cursor that follows acknowledgements.

    `fork_lock` is held while SQLite works, so that a fork can wait until it is free. The reader
    skips damaged pages; such a file is never trimmed or deleted, but quarantined once everything
    readable in it is sent.
    """

    def __init__(self, spool: Spool, fork_lock: threading.Lock) -> None:
        self._spool = spool
        self._fork_lock = fork_lock
        self._log: LocalLog | None = None
        self._file: tuple[int, int] | None = None
        self._rejects: LocalLog | None = None
        self._next = 0
        self._damaged = False
        self._skipped = 0

    def __enter__(self) -> "SpoolReader":
        return self

    def __exit__(self, *_: object) -> None:
        with self._fork_lock:
            self._close()

    def next(self) -> list[tuple[int, WireRecord]]:
        """Return the next records to send with their offsets, bounded in number and bytes.

        Raises InputError for a spool that cannot be opened, sqlite3.Error for one that cannot be
        read.
        """
        with self._fork_lock:
            window = self._read_on()
            if window or self._log is None:
                return window
            if file_identity(self._spool.path) != self._file:
                # Someone deleted the file and the sink created another: what the old one held is
                # sent.
                self._close()
                return self._read_on()
            if self._damaged and quarantine(self._spool.path) is None:
                raise sqlite3.DatabaseError(
                    f"{self._spool.path} is damaged and cannot be set aside"
                )
            # Keep it open until the next call: a sink may be in the middle of appending to it.
            return []

    def sent(self, offset: int) -> None:
        """Mark everything up to `offset` as done and free its space."""
        # In memory first: a full disk must not cause endless resends.
        self._next = offset + 1
        assert self._log is not None, "only what was read can have been sent"
        with self._fork_lock:
            try:
                self._log.move_cursor(CURSOR, offset + 1)
                if not self._damaged:
                    self._log.trim(offset + 1)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    raise
                self._damaged = True

    def take_skipped(self) -> int:
        """Return how many unreadable records were skipped since the last call."""
        skipped, self._skipped = self._skipped, 0
        return skipped

    @property
    def rejected_path(self) -> Path:
        """Where `reject` stores records."""
        return self._spool.rejected_path

    def reject(self, record: WireRecord) -> None:
        """Store a record that the broker permanently refuses in a separate log."""
        with self._fork_lock:
            if self._rejects is None:
                self._rejects = open_log(self._spool.rejected_path, mode="append")
            self._rejects.append([record])

    def is_empty(self) -> bool:
        """Return whether nothing is left to send; raises what `next` raises."""
        return not self.next()

    def _read_on(self) -> list[tuple[int, WireRecord]]:
        """Return the next window, skipping a damaged page if necessary."""
        try:
            return self._read()
        except sqlite3.DatabaseError as error:
            if file_identity(self._spool.path) != self._file:
                return []  # damaged, and already quarantined by the sink
            if not is_damage(error) or self._log is None:
                raise
            return self._read_behind(self._log)

    def _read_behind(self, log: LocalLog) -> list[tuple[int, WireRecord]]:
        self._damaged = True
        broken = self._next
        end = max(log.end_offset(), broken + 1)
        self._next = end
        window: list[tuple[int, WireRecord]] = []
        for offset in range(broken + 1, min(end, broken + MAX_PROBES)):
            try:
                window = log.read(offset, WINDOW_RECORDS, max_bytes=WINDOW_BYTES)
            except sqlite3.DatabaseError as error:
                if not is_damage(error):
                    self._next = broken
                    raise
                continue
            self._next = offset
            break
        self._skipped += self._next - broken
        return window

    def _read(self) -> list[tuple[int, WireRecord]]:
        if self._log is None:
            self._file = file_identity(self._spool.path)
            if self._file is None:
                return []
            self._log = open_log(self._spool.path, mode="append")
            self._next = self._log.cursor(CURSOR)
        return self._log.read(self._next, WINDOW_RECORDS, max_bytes=WINDOW_BYTES)

    def _close(self) -> None:
        for log in (self._log, self._rejects):
            if log is not None:
                log.close()
        self._log = self._rejects = None
        self._damaged = False
        self._next = 0


def _claim(path: Path) -> Spool | None:
    lock = lock_path(path).open("ab")
    if try_lock(lock):
        return Spool(path, lock)
    lock.close()
    return None


def lock_path(path: Path) -> Path:
    """Return the file whose lock marks a spool as owned by a living process."""
    return path.with_name(path.name + ".lock")


def _written_at(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0  # another process has just sent and deleted it


@dataclass(frozen=True, slots=True)
class SpoolState:
    """One spool; `records` are not yet acknowledged, or were permanently refused."""

    path: Path
    records: int
    owned: bool
    is_rejected: bool
    trouble: str = ""


def spool_states(folder: Path) -> Sequence[SpoolState]:
    """Return the spools in a folder, and the logs of refused records."""
    paths = [*folder.glob("*.log.db"), *folder.glob("*.rejected")] if folder.is_dir() else []
    return [_state(path) for path in sorted(paths)]


def damaged_spools(folder: Path) -> Sequence[Path]:
    """Return the damaged spools that were quarantined in a folder."""
    found = folder.glob("*.bad-*") if folder.is_dir() else ()
    return sorted(path for path in found if not path.name.endswith(("-wal", "-shm", ".lock")))


def other_folders(location: KafkaLocation) -> Sequence[tuple[Path, str]]:
    """Return other spool folders for the same topic name, written for differently named brokers.

    Each comes with the log it was written for, empty if unknown: before there was a folder per
    cluster.
    """
    topic, own = topic_path(location), spool_path(location)
    folders = [path.parent for path in topic.glob("*/" + LOCATION_FILE) if path.parent != own]
    return [(topic, ""), *((folder, _written_for(folder)) for folder in sorted(folders))]


def _written_for(folder: Path) -> str:
    try:
        return (folder / LOCATION_FILE).read_text("utf-8", "replace").strip()
    except OSError:
        return ""


def _state(path: Path) -> SpoolState:
    is_rejected = path.name.endswith(".rejected")
    owned = _is_owned(path)
    try:
        with closing(open_log(path, mode="read")) as log:
            first = log.cursor(CURSOR)
            ((records,),) = log.connection.execute(
                'SELECT count(*) FROM records WHERE "offset" >= ?', (first,)
            ).fetchall()
    except (InputError, sqlite3.Error) as error:
        return SpoolState(path, 0, owned, is_rejected, str(error))
    return SpoolState(path, records, owned, is_rejected)


def _is_owned(path: Path) -> bool:
    """Return whether a living process holds the spool."""
    try:
        with lock_path(path).open("rb") as lock:
            return not try_lock(lock, shared=True)
    except FileNotFoundError:
        return False
    except OSError:
        return True
