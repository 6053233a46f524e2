"""A task of the consumer: register its position in a local log, and trim records that all have landed."""

import logging
import sqlite3
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.ingest.sources.local_log import partition_of
from evaltap.evaluator.ingest.sources.positions import stored_offsets
from evaltap.evaluator.pipeline.live.consumer import ConsumerTask
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.local import LocalLog, open_log
from evaltap.schemas.log.retention import RECORDS_PER_TRIM, register, trim_landed

EVERY_SECONDS: Final = 1.0
_TOLD_SECONDS: Final = 3_600.0
log = logging.getLogger(__name__)


class LogCursor(ConsumerTask):
    """The cursor of a store in the local log at `path`; it follows the committed offset.

    Records that every consumer has landed are deleted once they are older than `keep`.  A log that cannot be
    written to is read nevertheless; a warning says that other consumers may then trim records not read here.
    """

    def __init__(
        self,
        path: Path,
        store: Store,
        keep: timedelta,
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], float] = time.time,
    ) -> None:
        self._path = path
        self._store = store
        self._keep = keep.total_seconds()
        self._clock = clock
        self._now = now
        self._name = f"{store.path.name} {store.identity()}"
        self._not_before = 0.0
        self._warn_at = 0.0

    def begin(self) -> None:
        """Register before the first record is read, so that nothing is trimmed ahead of it."""
        self._move(trim=False)

    def step(self, changed: ChangedCases | None) -> bool:
        """Move the cursor and trim, once a second; return whether there is more to trim."""
        if self._clock() < self._not_before:
            return False
        self._not_before = self._clock() + EVERY_SECONDS
        return self._move(trim=True) >= RECORDS_PER_TRIM

    def close(self) -> None:
        """Move the cursor behind everything that has landed."""
        while self._move(trim=True) >= RECORDS_PER_TRIM:
            pass

    def _move(self, *, trim: bool) -> int:
        """Return how many records were trimmed."""
        if not self._path.exists():  # opening it would create it
            return 0
        try:
            opened = open_log(self._path, mode="append")
        except InputError as error:
            self._warn(error)
            return 0
        try:
            landed = self._landed(opened)
            try:
                register(opened, self._name, landed)
                return trim_landed(opened, older_than=self._now() - self._keep) if trim else 0
            except MemoryError:  # a reader's statement is at its ceiling: tried again in a second
                return 0
        except sqlite3.Error as error:
            self._warn(error)
            return 0
        finally:
            opened.close()

    def _landed(self, opened: LocalLog) -> int:
        """Return the offset up to which everything is committed: the log's start if it was never read."""
        self._store.join()
        found = stored_offsets(self._store).get(partition_of(opened))
        # An offset beyond the end means that the file was restored from a copy: read it from the start.
        known = found is not None and found <= opened.end_offset()
        return found if found is not None and known else opened.start_offset()

    def _warn(self, error: Exception) -> None:
        if self._clock() >= self._warn_at:
            self._warn_at = self._clock() + _TOLD_SECONDS
            log.warning(
                "cannot store this consumer's position in %s (%s), so the log is not trimmed, or trimmed"
                " for other consumers only; give the consumer write access to it",
                self._path,
                error,
            )
