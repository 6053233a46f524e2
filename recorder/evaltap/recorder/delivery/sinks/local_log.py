"""The local log sink: one transaction per batch, reopened after every error."""

import logging
import os
import sqlite3
import time
from collections.abc import Sequence
from pathlib import Path

from evaltap.recorder.delivery.free_space import shortage
from evaltap.recorder.faults import SinkError
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import LocalLog, file_identity, is_damage, open_log, quarantine
from evaltap.schemas.log.retention import (
    WARN_SHARE,
    is_manifest,
    note_limit,
    trim_landed,
    waiting_bytes,
)
from evaltap.schemas.wire.record import WireRecord

_LOG = logging.getLogger("evaltap.recorder")

DEFAULT_MAX_BYTES = 1 << 30
TRIM_SHARE = 0.75
"""At this share of its limit, the log deletes what all consumers have landed, however recent."""
OVERFULL_SHARE = 1 / 4
"""How far the last batch may exceed the limit: an eighth of it (`LOG_BATCHES`) and what SQLite adds."""
RESERVE_SHARE = 1 / 16
"""Space beyond that reserved for manifests: a full log still records what was dropped."""
CHECKPOINT_PAGES = 1_000
"""WAL pages of 4 KiB before a checkpoint; SQLite's default."""
WARN_SECONDS = 600.0
REMEDY = "start `evaltap consume`, or raise EVALTAP_LOG_MAX_BYTES"

_INHERITED: list[LocalLog] = []
"""Logs of the parent process: closing one in a forked child could touch the parent's files."""


class LocalLogSink:
    """Append to the local log at `path`, created with the first batch.

    `max_bytes` limits the file's content, in bytes. A log that fills up deletes what every consumer
    has landed; if that is not enough it refuses new batches and keeps the old ones. Deleted pages
    are reused, so the file does not grow further. `min_free_bytes` of the disk stay free, by default
    5% of it and at most 1 GiB. `remedy` ends the warning that a log is nearly full.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        min_free_bytes: int | None = None,
        remedy: str = REMEDY,
    ) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        self.min_free_bytes = min_free_bytes
        self._remedy = remedy
        self._log: LocalLog | None = None
        self._identity: tuple[int, int] | None = None
        self._pid = 0
        self._manifest = 0
        self._warn_at = 0.0

    def append(self, records: Sequence[WireRecord]) -> None:
        """Append the records in one transaction; raises SinkError when disk or file prevent it."""
        if not records:
            return
        try:
            log = self._open()
            self._make_room(log, records)
            self._append(log, records)
        except SinkError:
            raise
        except InputError as error:
            if is_damage(error.__cause__):
                quarantine(self.path)
            raise SinkError(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            # The connection itself may be broken (file replaced): the retry opens a new one.
            self.close()
            # Another process writing to it may already have replaced it.
            mine = is_damage(error) and file_identity(self.path) == self._identity
            aside = quarantine(self.path) if mine else None
            note = f"; it was set aside as {aside.name}" if aside else ""
            raise SinkError(f"cannot write to {self.path}: {error}{note}") from error

    def flush(self, timeout_seconds: float) -> bool:
        """Return True: appended records are already in the file."""
        return True

    def backlog(self) -> int:
        """Return 0: nothing is pending behind this sink."""
        return 0

    def close(self) -> None:
        """Close the file."""
        log, self._log = self._log, None
        if log is None:
            return
        if self._pid != os.getpid():
            _INHERITED.append(log)
            return
        try:
            log.close()
        except sqlite3.Error:
            # A deleted file cannot be closed cleanly, and nothing depends on it any more.
            _INHERITED.append(log)

    def _open(self) -> LocalLog:
        if self._log is not None and (self._pid != os.getpid() or self._replaced()):
            self.close()
        if self._log is None:
            self._log = open_log(self.path, mode="append")
            self._pid = os.getpid()
            self._identity = file_identity(self.path)
            self._manifest = 0
            note_limit(self._log, self.max_bytes)
            # Small logs get a small WAL, with more frequent checkpoints.
            pages = max(64, min(CHECKPOINT_PAGES, self.max_bytes // 16_384))
            self._log.connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")
            self._log.connection.execute(f"PRAGMA journal_size_limit = {pages * 4096}")
        return self._log

    def _replaced(self) -> bool:
        """Return whether the file at the path is no longer the open one (deleted, rotated)."""
        return file_identity(self.path) != self._identity

    def _append(self, log: LocalLog, records: Sequence[WireRecord]) -> None:
        if len(records) > 1 or not is_manifest(records[0]):
            log.append(records)
            return
        before, self._manifest = self._manifest, log.append(records)
        # Each manifest supersedes the earlier ones: they must not pile up in a full log.
        if before and log.used_bytes() >= self.max_bytes:
            log.connection.execute('DELETE FROM records WHERE "offset" = ?', (before,))

    def _make_room(self, log: LocalLog, records: Sequence[WireRecord]) -> None:
        used = log.used_bytes()
        if used >= self.max_bytes * TRIM_SHARE and trim_landed(log):
            used = log.used_bytes()
        self._warn(log, used)
        limit = self.max_bytes
        if all(is_manifest(record) for record in records):
            limit += int(self.max_bytes * (OVERFULL_SHARE + RESERVE_SHARE))
        while used >= limit:
            if not trim_landed(log):
                raise SinkError(f"{self.path} has {used} bytes, and the limit is {self.max_bytes}")
            used = log.used_bytes()
        if short := shortage(self.path.parent, self.min_free_bytes):
            raise SinkError(f"{self.path}: {short}")

    def _warn(self, log: LocalLog, used: int) -> None:
        """Warn in the agent's log, at intervals, that turns are about to be dropped."""
        if used < self.max_bytes * WARN_SHARE or time.monotonic() < self._warn_at:
            return
        self._warn_at = time.monotonic() + WARN_SECONDS
        _LOG.warning(
            "%s is at %.0f %% of its limit of %s bytes, with %.0f %% still to be read; when it is full,"
            " turns are dropped and counted: %s",
            self.path,
            100 * used / self.max_bytes,
            f"{self.max_bytes:,}",
            100 * waiting_bytes(log) / self.max_bytes,
            self._remedy,
        )
