"""A log of several partitions read in the order of its own time, and the corresponding clock.

Partitions are read at different speeds, and a backlog is read faster than it was written.  "Nothing arrived
for two seconds" must therefore refer to the log and not to the reader: two seconds have passed when every
partition was read up to a record that was written two seconds later, or to its end.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Mapping

from evaltap.evaluator.ingest.sources.base import Partition, SourceRecord, SteeredSource

RECORDS_PER_FETCH = 500
QUEUED_BYTES = 8 << 20
"""Bytes of one partition that may wait for slower partitions before it is paused."""
_MILLISECOND = 1_000_000


class LogTimeReader:
    """Returns the records of a source in the order of their timestamps.  Used from one thread.

    A record is returned once no partition can hold an earlier one: each has a record queued here or was read
    to its end.  `clock` and `wall_clock` return seconds.  Timestamps in the future count as now, so that one
    producer's wrong clock does not advance the time of the log.
    """

    def __init__(
        self,
        source: SteeredSource,
        *,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
    ) -> None:
        self._source = source
        self._clock = clock
        self._wall_clock = wall_clock
        self._queues: dict[Partition, deque[tuple[int, SourceRecord]]] = {}
        self._bytes: dict[Partition, int] = {}
        self._behind: Collection[Partition] = ()
        self._fetched = False
        self._paused: set[Partition] = set()
        self._next: dict[Partition, int] = {}
        self._now_ns = 0
        self._moved_at = clock()
        self.gaps: list[str] = []
        """Messages about records that the log deleted unread; the reader of this list clears it."""

    @property
    def next_offsets(self) -> Mapping[Partition, int]:
        """The offset of each partition after the last returned record."""
        return self._next

    @property
    def is_at_end(self) -> bool:
        """Whether all records that the log held at the last fetch have been returned."""
        return self._fetched and not self._behind and not any(self._queues.values())

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at these offsets, as `CaseSource.seek` does."""
        self._source.seek(offsets)
        self._queues.clear()
        self._bytes.clear()
        self._next.clear()
        self._fetched = False

    def fetch(self, timeout_seconds: float) -> None:
        """Fetch more records; wait up to the timeout if there are none."""
        full = {place for place, size in self._bytes.items() if size >= QUEUED_BYTES}
        if full or self._paused:
            self._source.pause(full)
            self._paused = full
        batch = self._source.poll(RECORDS_PER_FETCH, timeout_seconds)
        self.gaps += batch.gaps
        latest_ns = int(self._wall_clock() * 1e9)
        for record in batch.records:
            time_ns = latest_ns if record.time_ms is None else record.time_ms * _MILLISECOND
            queue = self._queues.setdefault(record.partition, deque())
            queue.append((min(time_ns, latest_ns), record))
            self._bytes[record.partition] = (
                self._bytes.get(record.partition, 0) + record.record.size
            )
        # Read after fetching: every record written before this moment was returned or is still behind.
        self._behind = self._source.behind()
        self._fetched = True

    def take(self) -> SourceRecord | None:
        """Return the earliest record; None if an earlier one may still have to be fetched."""
        if any(not self._queues.get(partition) for partition in self._behind):
            return None
        heads = [(queue[0][0], partition) for partition, queue in self._queues.items() if queue]
        if not heads:
            return None
        time_ns, partition = min(heads)
        _, record = self._queues[partition].popleft()
        self._bytes[partition] -= record.record.size
        self._next[partition] = record.offset + 1
        self._now_ns = max(self._now_ns, time_ns)
        self._moved_at = self._clock()
        return record

    def now_ns(self) -> int:
        """Return the time of the log: its latest record's, and from its end on the time that passes."""
        if self.is_at_end and self._now_ns:
            now = self._clock()
            self._now_ns += int(max(0.0, now - self._moved_at) * 1e9)
            self._moved_at = now
        return self._now_ns
