"""The sink over the local log: one transaction a batch, reopened after every error."""

import os
import shutil
import sqlite3
from collections.abc import Sequence
from pathlib import Path

from evaltap.recorder.faults import SinkError
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import LocalLog, is_damage, open_log, quarantine
from evaltap.schemas.wire.record import WireRecord

DEFAULT_MAX_BYTES = 1 << 30
MIN_FREE_SHARE = 0.05
"""Stop writing when less than this share of the disk is free: the disk is the agent's."""

_INHERITED: list[LocalLog] = []
"""Logs of the parent process: closing one in a forked child could touch the parent's files."""


class LocalLogSink:
    """Append to the local log at `path`, which is created on the first batch.

    `max_bytes` bounds the file, in bytes; a full log refuses new batches and keeps the old ones.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_bytes: int = DEFAULT_MAX_BYTES,
        min_free_share: float = MIN_FREE_SHARE,
    ) -> None:
        self.path = Path(path)
        self.max_bytes = max_bytes
        self.min_free_share = min_free_share
        self._log: LocalLog | None = None
        self._identity: tuple[int, int] | None = None
        self._pid = 0

    def append(self, records: Sequence[WireRecord]) -> None:
        """Take the records in one transaction; SinkError when disk or file do not allow it."""
        if not records:
            return
        try:
            log = self._open()
            self._check_room(log)
            log.append(records)
        except SinkError:
            raise
        except InputError as error:
            if is_damage(error.__cause__):
                quarantine(self.path)
            raise SinkError(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            # The connection itself may be broken (the file was replaced): the next try opens a new one.
            self.close()
            # Another process that writes it may have put a new one in its place already.
            mine = is_damage(error) and _file_identity(self.path) == self._identity
            aside = quarantine(self.path) if mine else None
            note = f"; it was set aside as {aside.name}" if aside else ""
            raise SinkError(f"cannot write to {self.path}: {error}{note}") from error

    def flush(self, timeout_seconds: float) -> bool:
        """Have nothing left: a record that was taken is on the file."""
        return True

    def backlog(self) -> int:
        """Return 0: there is nothing behind this sink."""
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
            # A file that vanished cannot be closed properly, and nothing depends on it any more.
            _INHERITED.append(log)

    def _open(self) -> LocalLog:
        if self._log is not None and (self._pid != os.getpid() or self._replaced()):
            self.close()
        if self._log is None:
            self._log = open_log(self.path, mode="append")
            self._pid = os.getpid()
            self._identity = _file_identity(self.path)
        return self._log

    def _replaced(self) -> bool:
        """Return whether the file at the path is no longer the open one (deleted, rotated)."""
        return _file_identity(self.path) != self._identity

    def _check_room(self, log: LocalLog) -> None:
        used = log.used_bytes()
        if used >= self.max_bytes:
            raise SinkError(f"{self.path} holds {used} bytes, the limit is {self.max_bytes}")
        disk = shutil.disk_usage(self.path.parent)
        if disk.free < disk.total * self.min_free_share:
            raise SinkError(f"under {self.min_free_share:.0%} of the disk of {self.path} is free")


def _file_identity(path: Path) -> tuple[int, int] | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
