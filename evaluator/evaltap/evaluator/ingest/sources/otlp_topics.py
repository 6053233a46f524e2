"""Topics of raw OTLP as a source of turns: a Collector's telemetry, assembled into turns while it is read.

The spans of a trace are spread over several records, partitions and topics, so a turn has no position of
its own on the log.  Two things survive a restart: the offset of each partition, which precedes every trace
that may still grow; and how far each trace was read, so that its telemetry beyond that offset does not
count as new.
"""

import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from evaltap.evaluator.ingest.sources.base import (
    Bounds,
    Partition,
    ReadTrace,
    SourceBatch,
    SourceRecord,
    SteeredSource,
)
from evaltap.schemas.errors import FormatError
from evaltap.schemas.wire.record import Reason, RecordError, WireRecord
from evaltap.schemas.wire.telemetry import DueTraces, TraceReading

OFFSETS_EVERY_SECONDS = 1.0
"""Interval at which the offsets for a restart are computed."""


class TraceAssembler(Protocol):
    """Assembles telemetry into turns; called from one thread at a time."""

    def decode(self, value: bytes) -> Mapping[str, Sequence[Any]]:
        """Return the relevant items of a message by trace id; raise FormatError for poison."""
        ...

    def withhold(self, record: WireRecord, detail: str) -> tuple[WireRecord, str]:
        """Return an unreadable message and the reason, both redacted."""
        ...

    def take(
        self, trace_id: str, items: Sequence[object], *, memory: str | None, is_new: bool
    ) -> None:
        """Add the items of a trace from a message.

        `memory` is the state that an earlier reading of the trace stored, in case it is no longer held.
        `is_new` is False for items that this earlier reading covered.
        """

    def due(self, now_ns: int | None) -> DueTraces:
        """Return the traces that are due at this time of the log; with None, all that are held.

        The caller exhausts the readings before it calls anything else.
        """
        ...

    def statement(self) -> WireRecord | None:
        """Return the manifest of all records so far; None if nothing changed since the last one."""


@dataclass(slots=True)
class Progress:
    """What the store knows about traces that were read and about poison that was quarantined."""

    traces: dict[str, ReadTrace] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    """Those of the traces that have been completed since."""
    poison: set[tuple[Partition, int]] = field(default_factory=set)


class OtlpSource:
    """Reads the telemetry on the topics of `source` as turns.

    `seek` calls `progress`.  With `closes_at_end`, traces that are still open at the end of the log are
    returned as they are; their offsets are not advanced, so that the next process reads them again.
    """

    def __init__(
        self,
        source: SteeredSource,
        assembler: TraceAssembler,
        *,
        progress: Callable[[], Progress] = Progress,
        closes_at_end: bool = False,
        clock: Callable[[], float] = time.monotonic,
        wall_clock: Callable[[], float] = time.time,
        offsets_every_seconds: float = OFFSETS_EVERY_SECONDS,
    ) -> None:
        self.source = source
        self.assembler = assembler
        self._log = LogTimeReader(source, clock=clock, wall_clock=wall_clock)
        self.progress = progress
        self._known = Progress()
        self._start: Mapping[Partition, int] = {}
        self._closes_at_end = closes_at_end
        self._clock = clock
        self._interval = offsets_every_seconds
        self._offsets_at = clock()
        self._stored: dict[Partition, int] = {}
        self._next: dict[Partition, int] = {}
        self._places: dict[str, dict[Partition, tuple[int, int]]] = {}
        self._records: list[SourceRecord] = []
        self._read: list[ReadTrace] = []
        self._readings = self._stream_readings()
        self._resting = True
        self._closed = False

    @property
    def open_traces(self) -> int:
        """The number of traces that are incomplete or may still be revised; a restart reads them again."""
        return len(self._places)

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at these offsets, with the progress of the traces beyond them."""
        self._start = dict(offsets)
        self._stored = dict(offsets)
        self._known = self.progress()
        self._log.seek(offsets)

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the turns of the traces that are due; the turns of a trace are never split.

        So a batch may hold slightly more than `max_records`, followed by a manifest.
        """
        deadline = self._clock() + timeout_seconds
        while not self._closed:
            if self._resting:
                patience = 0.0 if self._records else max(0.0, deadline - self._clock())
                self._log.fetch(patience)
            self._resting = self._draw(max_records)
            done = self._records or self._read or self._next or self._closes_at_end
            if not self._resting or (self._log.is_at_end and done) or self._clock() >= deadline:
                return self._batch()
        return SourceBatch()

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        return self.source.bounds(waits=waits)

    def close(self) -> None:
        """Close the log; the next process reads the open traces again."""
        self._closed = True
        self.source.close()

    def _draw(self, max_records: int) -> bool:
        """Take readings; return True if all fetched records are used up, False if the batch is full."""
        for reading in self._readings:
            if reading is None:
                return True
            self._add(reading)
            if len(self._records) >= max_records:
                return False
        return True

    def _stream_readings(self) -> Iterator[TraceReading | None]:
        """Yield readings as their traces become due, and None whenever more records must be fetched."""
        while True:
            yield from self._due(self._log.now_ns())
            self._update_offsets(self._interval)
            if (record := self._log.take()) is not None:
                # Before the record is added: a late span must not become part of a trace that was complete.
                yield from self._due(self._log.now_ns())
                self._take(record)
                continue
            if self._closes_at_end and self._log.is_at_end:
                yield from self._due(None)
                self._update_offsets(0)
            yield None

    def _due(self, now_ns: int | None) -> Iterator[TraceReading]:
        due = self.assembler.due(now_ns)
        yield from due.readings
        for trace_id in due.forgotten:
            self._places.pop(trace_id, None)
            if trace_id in self._known.traces:
                self._known.settled.add(trace_id)

    def _take(self, record: SourceRecord) -> None:
        """Pass a record's telemetry to the assembler, or quarantine the record as poison."""
        try:
            if not record.record.value:
                raise RecordError(Reason.EMPTY, "the record has no value; expected OTLP")
            found = self.assembler.decode(record.record.value)
        except RecordError as error:
            self._quarantine(record, error)
            return
        except FormatError as error:
            self._quarantine(record, RecordError(Reason.UNDECODABLE, str(error)))
            return
        place, offset = record.partition, record.offset
        for trace_id, items in found.items():
            read = self._known.traces.get(trace_id)
            is_new = read is None or offset >= read.places.get(place, (0, 0))[1]
            memory = read.memory if read is not None else None
            if read is not None and trace_id not in self._places and self._is_settled(read):
                if not is_new:
                    continue
                memory = None
            places = self._places.setdefault(trace_id, {})
            places[place] = (places.get(place, (offset, 0))[0], offset + 1)
            self.assembler.take(trace_id, items, memory=memory, is_new=is_new)

    def _is_settled(self, read: ReadTrace) -> bool:
        """Whether a trace was completed: some of its telemetry lies before the start offsets."""
        return read.trace_id in self._known.settled or any(
            first < self._start.get(partition, 0) for partition, (first, _) in read.places.items()
        )

    def _quarantine(self, record: SourceRecord, error: RecordError) -> None:
        if (record.partition, record.offset) not in self._known.poison:
            kept, detail = self.assembler.withhold(record.record, str(error))
            self._records.append(
                record._replace(record=kept, error=RecordError(error.reason, detail))
            )

    def _add(self, reading: TraceReading) -> None:
        """Add the turns of a reading, at the position of the trace's last record."""
        places = self._places[reading.trace_id]
        partition, (_, next_offset) = next(reversed(places.items()))
        for record in reading.records:
            self._records.append(SourceRecord(partition, next_offset - 1, record))
        if reading.memory is not None:
            self._read.append(ReadTrace(reading.trace_id, dict(places), reading.memory))

    def _update_offsets(self, interval: float) -> None:
        """Compute where a restart would continue once everything returned so far is stored."""
        if self._clock() - self._offsets_at < interval:
            return
        self._offsets_at = self._clock()
        lowest = dict(self._log.next_offsets)
        for places in self._places.values():
            for partition, (first, _) in places.items():
                lowest[partition] = min(first, lowest[partition])
        for partition, offset in lowest.items():
            if offset > self._stored.get(partition, -1):
                self._next[partition] = self._stored[partition] = offset

    def _batch(self) -> SourceBatch:
        """Return the collected turns, with a manifest if one is due."""
        if (statement := self.assembler.statement()) is not None:
            partition, next_offset = next(iter(self._log.next_offsets.items()))
            self._records.append(SourceRecord(partition, next_offset - 1, statement))
        batch = SourceBatch(
            tuple(self._records),
            self._next,
            tuple(self._read),
            more=not (self._resting and self._log.is_at_end),
            gaps=tuple(self._log.gaps),
            away=self._log.away,
        )
        self._log.gaps.clear()
        self._records, self._next, self._read = [], {}, []
        return batch


RECORDS_PER_FETCH = 500
QUEUED_BYTES = 8 << 20
"""Bytes of one partition that may wait for slower partitions before it is paused."""
_MILLISECOND = 1_000_000


class LogTimeReader:
    """Returns the records of a source in the order of their timestamps.  Used from one thread.

    Partitions are read at different speeds, and a backlog is read faster than it was written.  So "nothing
    arrived for two seconds" refers to the log: two seconds have passed when every partition was read up to a
    record that was written two seconds later, or to its end.

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
        self.next_offsets: dict[Partition, int] = {}
        """The offset of each partition after the last returned record."""
        self._now_ns = 0
        self._moved_at = clock()
        self.away = False
        self.gaps: list[str] = []
        """Messages about records that the log deleted unread; the reader of this list clears it."""

    @property
    def is_at_end(self) -> bool:
        """Whether all records that the log held at the last fetch have been returned."""
        return self._fetched and not self._behind and not any(self._queues.values())

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at these offsets, as `CaseSource.seek` does."""
        self._source.seek(offsets)
        self._queues.clear()
        self._bytes.clear()
        self.next_offsets.clear()
        self._fetched = False

    def fetch(self, timeout_seconds: float) -> None:
        """Fetch more records; wait up to the timeout if there are none."""
        full = {place for place, size in self._bytes.items() if size >= QUEUED_BYTES}
        if full or self._paused:
            self._source.pause(full)
            self._paused = full
        batch = self._source.poll(RECORDS_PER_FETCH, timeout_seconds)
        self.gaps += batch.gaps
        self.away = batch.away
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
        self.next_offsets[partition] = record.offset + 1
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
