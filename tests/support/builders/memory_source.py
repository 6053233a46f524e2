"""A source of records in memory."""

import threading
from collections.abc import Iterable, Mapping

from evaltap.evaluator.ingest.sources.base import Bounds, Partition, SourceBatch, SourceRecord
from evaltap.schemas.wire.record import WireRecord


class MemorySource:
    """One partition of records held in memory; `append` may be called from any thread."""

    def __init__(self, records: Iterable[WireRecord] = (), *, topic: str = "memory") -> None:
        self.partition = Partition(topic)
        self._records = list(records)
        self._next = 0
        self._closed = False
        self._changed = threading.Condition()

    def append(self, records: Iterable[WireRecord]) -> None:
        """Add records at the end and wake a waiting poll."""
        with self._changed:
            self._records.extend(records)
            self._changed.notify_all()

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at the offset of this partition, or at the first record if there is none."""
        self._next = offsets.get(self.partition, 0)

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return up to `max_records` records; wait up to `timeout_seconds` if there are none."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._closed or self._next < len(self._records), timeout_seconds
            )
            found = [] if self._closed else self._records[self._next : self._next + max_records]
            first, self._next = self._next, self._next + len(found)
        records = tuple(
            SourceRecord(self.partition, first + index, record)
            for index, record in enumerate(found)
        )
        return SourceBatch(records, {self.partition: self._next} if records else {})

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        """Return the offsets of the records held now."""
        return {self.partition: Bounds(0, len(self._records))}

    def close(self) -> None:
        """End a waiting poll."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
