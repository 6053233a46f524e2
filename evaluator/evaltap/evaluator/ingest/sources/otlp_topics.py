"""Topics of raw OTLP as a source of turns: a Collector's telemetry, assembled into turns while it is read.

The spans of a trace are spread over several records, partitions and topics, so a turn has no position of
its own on the log.  Two things survive a restart: the offset of each partition, which precedes every trace
that may still grow; and how far each trace was read, so that its telemetry beyond that offset does not
count as new.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
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
from evaltap.evaluator.ingest.sources.log_time import LogTimeReader
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
        ...


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

    def bounds(self) -> Mapping[Partition, Bounds]:
        """Return the offsets that each partition holds now."""
        return self.source.bounds()

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
            record = self._log.take()
            if record is not None:
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
        )
        self._log.gaps.clear()
        self._records, self._next, self._read = [], {}, []
        return batch
