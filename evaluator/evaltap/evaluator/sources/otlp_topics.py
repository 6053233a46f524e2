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

from evaltap.evaluator.sources.base import (
    Bounds,
    Partition,
    ReadTrace,
    SourceBatch,
    SourceRecord,
    SteeredSource,
)
from evaltap.evaluator.sources.log_time import LogTimeReader
from evaltap.schemas.errors import FormatError
from evaltap.schemas.wire.record import Reason, RecordError, WireRecord
from evaltap.schemas.wire.telemetry import DueTraces, TraceReading

OFFSETS_EVERY_SECONDS = 1.0
"""How often it is worked out where a restart would have to go on."""


class TraceAssembler(Protocol):
    """Makes turns of telemetry; called from one thread, never concurrently."""

    def decode(self, value: bytes) -> Mapping[str, Sequence[Any]]:
        """Return what a message holds that may matter, by trace id; raise FormatError for poison."""
        ...

    def withhold(self, record: WireRecord, detail: str) -> tuple[WireRecord, str]:
        """Return a message that cannot be read, and why, without what must not be kept of them."""
        ...

    def take(
        self, trace_id: str, items: Sequence[object], *, memory: str | None, is_new: bool
    ) -> None:
        """Add what a message held of a trace.

        `memory` is what an earlier reading of it left, should it not be held; `is_new` is False for
        what that reading had seen.
        """

    def due(self, now_ns: int | None) -> DueTraces:
        """Return the traces to read at this time of the log; None: all that are held, at the end.

        The readings are drawn to their end before anything else is called.
        """
        ...

    def statement(self) -> WireRecord | None:
        """Return the manifest of all records so far, None when nothing changed since the last."""
        ...


@dataclass(slots=True)
class Progress:
    """What the store knows about traces that were read and of poison that was set aside."""

    traces: dict[str, ReadTrace] = field(default_factory=dict)
    settled: set[str] = field(default_factory=set)
    """Traces of these that were done with since."""
    poison: set[tuple[Partition, int]] = field(default_factory=set)


class OtlpSource:
    """Turns of the agents whose telemetry lies on the topics of `source`.

    `progress` is asked for at `seek`.  With `closes_at_end` the traces that are open when everything
    was read are told as they are; their offsets stay, so that the next process reads them again.
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
        self._readings = self._read_on()
        self._resting = True
        self._closed = False

    @property
    def open_traces(self) -> int:
        """Traces that wait for more, or may still be revised; a restart reads them again."""
        return len(self._places)

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Go on at these offsets, knowing what was read beyond them."""
        self._start = dict(offsets)
        self._stored = dict(offsets)
        self._known = self.progress()
        self._log.seek(offsets)

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the turns of the traces that are due; those of one trace are never parted.

        So a batch may hold a few more than `max_records`, and a manifest behind them.
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
        """Leave the log; what is open is read again by the next process."""
        self._closed = True
        self.source.close()

    def _draw(self, max_records: int) -> bool:
        """Draw readings; return True when all that was fetched is taken, False when it is enough."""
        for reading in self._readings:
            if reading is None:
                return True
            self._add(reading)
            if len(self._records) >= max_records:
                return False
        return True

    def _read_on(self) -> Iterator[TraceReading | None]:
        """Yield readings as their traces become due; None when more must be fetched first."""
        while True:
            yield from self._due(self._log.now_ns())
            self._work_out_offsets(self._interval)
            record = self._log.take()
            if record is not None:
                # Before it is added: a late span must not slip into what was complete without it.
                yield from self._due(self._log.now_ns())
                self._take(record)
                continue
            if self._closes_at_end and self._log.is_at_end:
                yield from self._due(None)
                self._work_out_offsets(0)
            yield None

    def _due(self, now_ns: int | None) -> Iterator[TraceReading]:
        due = self.assembler.due(now_ns)
        yield from due.readings
        for trace_id in due.forgotten:
            self._places.pop(trace_id, None)
            if trace_id in self._known.traces:
                self._known.settled.add(trace_id)

    def _take(self, record: SourceRecord) -> None:
        """Give a record's telemetry to the assembler, or set it aside as poison."""
        try:
            if not record.record.value:
                raise RecordError(Reason.EMPTY, "the record has no value; expected OTLP")
            found = self.assembler.decode(record.record.value)
        except RecordError as error:
            self._set_aside(record, error)
            return
        except FormatError as error:
            self._set_aside(record, RecordError(Reason.UNDECODABLE, str(error)))
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
        """Whether a trace was done with: some of its telemetry lies before where we started."""
        return read.trace_id in self._known.settled or any(
            first < self._start.get(partition, 0) for partition, (first, _) in read.places.items()
        )

    def _set_aside(self, record: SourceRecord, error: RecordError) -> None:
        if (record.partition, record.offset) not in self._known.poison:
            kept, detail = self.assembler.withhold(record.record, str(error))
            self._records.append(
                record._replace(record=kept, error=RecordError(error.reason, detail))
            )

    def _add(self, reading: TraceReading) -> None:
        """Add the turns of a reading; their place is that of the last that came of the trace."""
        places = self._places[reading.trace_id]
        partition, (_, next_offset) = next(reversed(places.items()))
        for record in reading.records:
            self._records.append(SourceRecord(partition, next_offset - 1, record))
        if reading.memory is not None:
            self._read.append(ReadTrace(reading.trace_id, dict(places), reading.memory))

    def _work_out_offsets(self, interval: float) -> None:
        """Note where a restart would continue, given that all drawn so far is stored."""
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
        """Return what was drawn, with the statement that accounts for it."""
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
