"""Read the local log while recorders in other processes append to it."""

import os
import sqlite3
import threading
import time
from collections.abc import Mapping
from pathlib import Path

from evaltap.evaluator.ingest.sources.base import (
    BATCH_BYTES,
    Bounds,
    Partition,
    SourceBatch,
    SourceRecord,
)
from evaltap.evaluator.ingest.sources.positions import LogPosition
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import LocalLog, file_identity, open_log
from evaltap.schemas.log.opening import LogMissingError
from evaltap.schemas.log.retention import trimmed_until

CHECK_SECONDS = 0.02
"""How often a waiting poll checks whether another process has appended."""


class LocalLogSource:
    """Reads the local log at `path`, starting at the oldest record unless `seek` sets another offset.

    The partition is named after the log's id, not its path: reading a moved log continues, and a new log at
    an old path is read from its start, also when it replaces a log that is being read, which is read to its
    end first.  With `must_exist=False` the file may be created later.
    """

    def __init__(self, path: str | os.PathLike[str], *, must_exist: bool = True) -> None:
        self.path = Path(path)
        self._closed = threading.Event()
        self._wanted: dict[Partition, int] = {}
        self._next: int | None = None
        self._log: LocalLog | None = None
        self._file: tuple[int, int] | None = None
        """What tells the open file from one that replaces it."""
        self._reading = False
        self._must_exist = must_exist
        if must_exist:
            self._open()

    @property
    def partition(self) -> Partition:
        """The only partition of this log; its topic is `local:` followed by the log's id."""
        return partition_of(self._open())

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at the offset of this log's partition, or at its oldest record if there is none."""
        self._wanted = dict(offsets)
        self._next = None

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return up to `max_records` records; wait up to `timeout_seconds` if there are none."""
        deadline = time.monotonic() + timeout_seconds
        while not self._closed.is_set():
            batch = self._read(max_records)
            if batch.records:
                return batch
            if self._leaves_replaced():
                continue
            remaining = deadline - time.monotonic()
            if remaining <= 0:
                return batch
            self._closed.wait(min(CHECK_SECONDS, remaining))
        return SourceBatch()

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        """Return the offsets that the log holds now; empty while there is no file."""
        try:
            log = self._open()
            return {partition_of(log): Bounds(log.start_offset(), log.end_offset())}
        except LogMissingError:
            if self._must_exist:
                raise
            return {}
        except sqlite3.Error as error:
            raise self._unreadable(error) from error

    def close(self) -> None:
        self._closed.set()
        log, self._log = self._log, None
        if log is not None:
            log.close()

    def _read(self, max_records: int) -> SourceBatch:
        try:
            log = self._open()
            partition = partition_of(log)
            if self._next is None:
                wanted = self._wanted.get(partition, 0)
                # An offset beyond the end means that the file was restored from a copy.  Its new records
                # have not been read yet.
                self._next = wanted if wanted <= log.end_offset() else 0
            rows = log.read(self._next, max_records, max_bytes=BATCH_BYTES)
            gaps = self._trimmed(log, partition, rows[0][0]) if rows else ()
            # Erased records leave their offsets unused.
            is_whole = not rows or rows[-1][0] + 1 == self._next + len(rows)
            erased = () if is_whole else tuple(log.erased())
        except LogMissingError:
            if self._must_exist:
                raise
            return SourceBatch()
        except sqlite3.Error as error:
            raise self._unreadable(error) from error
        if rows:
            self._next = rows[-1][0] + 1
        records = tuple(SourceRecord(partition, offset, record) for offset, record in rows)
        return SourceBatch(
            records, {partition: self._next} if rows else {}, gaps=gaps, erased=erased
        )

    def _trimmed(self, log: LocalLog, partition: Partition, first: int) -> tuple[str, ...]:
        """Return messages about records that were trimmed while this process was reading."""
        begins = self._next or 0
        if not self._reading:
            self._reading = True  # the caller, who knows what has landed, reports earlier gaps
            return ()
        until = trimmed_until(log) if first > begins else 0
        if until <= begins:
            return ()
        return (LogPosition(partition, Bounds(min(until, first), first), begins).gap,)

    def _open(self) -> LocalLog:
        if self._log is None:
            self._file = file_identity(self.path)
            self._log = open_log(self.path, mode="read")
        return self._log

    def _leaves_replaced(self) -> bool:
        """Go from a log that was read to its end to one that has taken its place; return whether one has."""
        left, there = self._log, file_identity(self.path)
        if left is None or there in (None, self._file):
            return False
        try:
            self._log = open_log(self.path, mode="read")
        except LogMissingError:  # it is being created
            return False
        self._file = there
        if self._next is not None:
            self._wanted[partition_of(left)] = self._next
        self._next, self._reading = None, False
        left.close()
        return True

    def _unreadable(self, error: sqlite3.Error) -> InputError:
        return InputError(
            f"cannot read the log {self.path} ({error}): if the file is damaged, move it away; "
            "what was landed before is safe in the DuckDB file"
        )


def partition_of(log: LocalLog) -> Partition:
    """Return the only partition of a log."""
    return Partition(f"local:{log.log_id}")
