"""Know up to which time a log has been read, while records are still being put on it."""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from evaltap.evaluator.ingest.sources.base import Bounds, CaseSource, Partition
from evaltap.evaluator.ingest.sources.positions import stored_offsets
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError

DELAY: Final = timedelta(seconds=10)
"""How long a turn that has ended may take to reach the log."""


class LogEnd:
    """Asks a log where it ends, and then waits until a store has landed everything before that."""

    def __init__(
        self,
        source: CaseSource,
        store: Store,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source, self._store, self._now = source, store, now
        self._asked: tuple[datetime, Mapping[Partition, Bounds]] | None = None
        self._read_to: datetime | None = None

    def read_to(self) -> datetime | None:
        """Return the time before which every turn that had ended has landed; None before that is known.

        Asks the log, so not for each record.
        """
        if self._asked is not None:
            at, ends = self._asked
            self._store.join()
            landed = stored_offsets(self._store)
            if all(landed.get(one, start) >= end for one, (start, end) in ends.items()):
                self._read_to, self._asked = at - DELAY, None
        if self._asked is None:
            at = self._now()
            try:
                self._asked = at, self._source.bounds(waits=False)
            except InputError:  # it is away, of which the next poll tells
                return self._read_to
        return self._read_to
