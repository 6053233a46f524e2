"""How much memory DuckDB may use while records land: as much as a checkpoint of the latest rows needs.

A checkpoint reads 2,048 values of a column at a time and keeps them in memory.  If they do not fit, DuckDB
closes the file.  So the limit follows the size of the latest records, and of the stored turns next to which
new ones are written.
"""

from collections import deque
from typing import Final

from evaltap.evaluator.ingest.sources.base import SourceBatch
from evaltap.evaluator.store.database import LANDING_MEMORY, Store
from evaltap.evaluator.store.opening import ROWS_PER_GROUP
from evaltap.evaluator.store.turn_sizes import size_of_latest_turns

MOST_MEGABYTES: Final = 1_024
"""Enough for all sizes: values above 256 KB are not kept."""


class LandingMemory:
    """The limit for landing in a store, in megabytes; it rises with the size of records, and never falls."""

    def __init__(self, store: Store) -> None:
        self.megabytes = LANDING_MEMORY
        self._batches: deque[tuple[int, int]] = deque()
        """Records and bytes of the latest batches that together hold ROWS_PER_GROUP records."""
        self._records = self._bytes = 0
        self._add(*size_of_latest_turns(store))

    def rises(self, batch: SourceBatch) -> bool:
        """Return whether a batch raises the limit."""
        before = self.megabytes
        self._add(len(batch.records), sum(one.record.size for one in batch.records))
        return self.megabytes > before

    def _add(self, records: int, size: int) -> None:
        self._batches.append((records, size))
        self._records, self._bytes = self._records + records, self._bytes + size
        while self._records - self._batches[0][0] >= ROWS_PER_GROUP:
            first_records, first_size = self._batches.popleft()
            self._records, self._bytes = self._records - first_records, self._bytes - first_size
        while self.megabytes < MOST_MEGABYTES and self._bytes > self.megabytes << 20:
            self.megabytes = min(2 * self.megabytes, MOST_MEGABYTES)
