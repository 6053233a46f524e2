"""Telemetry from messages of a topic to records of turns: traces are gathered, read and finished.

The assembling side of a topic of raw OTLP.  Whoever reads the topic calls it from one thread, says
what time it is, and remembers between two lives of the process what it is given to remember; there
is no thread, no clock and no file here.  Redaction, sampling and limits are the recorder's own.
"""

import hashlib
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import orjson

from evaltap.recorder.assembler import Assembler, CaseData
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.finishing import Dropped, Finisher, configured_redactor
from evaltap.recorder.intake import take
from evaltap.recorder.otlp import decode_message, decode_request
from evaltap.recorder.telemetry import LogRecord, Span, canonical_json
from evaltap.recorder.trace_buffer import GatheredTrace, TraceBuffer, TraceLimits
from evaltap.recorder.trace_source import is_message, observe_gathered, slim, speaks
from evaltap.schemas.errors import FormatError
from evaltap.schemas.record import Manifest, WireRecord, encode_manifest
from evaltap.schemas.trace_reading import DueTraces, TraceReading

_LOG = logging.getLogger("evaltap.recorder")
_VOLATILE = ("revision", "samplingReason", "inclusionProbability")
"""Keys of `source` that say how a turn was recorded and not what it is."""


@dataclass(slots=True)
class TopicCounters:
    """What became of the messages; only ever grows."""

    messages: int = 0
    metrics_skipped: int = 0
    """Messages that held metrics."""
    undecodable: int = 0
    traces_read: int = 0
    turns: int = 0
    revisions: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _Told:
    """What was told of a trace before; survives a restart as text."""

    readings: int = 0
    runs: dict[str, str] = field(default_factory=dict)
    """Root span id to run id."""
    turns: dict[str, list[str]] = field(default_factory=dict)
    """Run id to the turn as it was written: its eval id, its invocation id and a digest."""
    speaks: bool = False
    changed: bool = False
    """Something came that no reading has seen."""

    @classmethod
    def of(cls, memory: str | None) -> "_Told":
        if not memory:
            return cls()
        readings, runs, turns = orjson.loads(memory)
        return cls(readings, runs, turns, speaks=True)

    def memory(self) -> str | None:
        if not self.speaks:
            return None
        return orjson.dumps([self.readings, self.runs, self.turns]).decode()


class TopicTraces:
    """Gathers traces and turns them into records, numbered for one producer.

    A turn's revision is the number of the reading of its trace in which it last changed, so it is the
    same in every life of the process that was told what the last one remembered.
    """

    def __init__(
        self,
        config: RecorderConfig,
        *,
        producer_id: str,
        recorder_version: str | None = None,
        limits: TraceLimits | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.counters = TopicCounters()
        self._config = config
        self._finisher = Finisher(config, lambda: configured_redactor(config))
        self._producer_id = producer_id
        self._version = recorder_version
        self._now = now
        self._forgotten: list[str] = []
        self.buffer = TraceBuffer(limits or _limits(config), on_forget=self._forgotten.append)
        self._told: dict[str, _Told] = {}
        self._seq = 0
        self._stated: tuple[int, int] = (0, 0)
        self._closing = False

    def decode(self, value: bytes) -> Mapping[str, Sequence[Span | LogRecord]]:
        """Return what a message holds that may matter, by trace; raise FormatError for poison."""
        self.counters.messages += 1
        try:
            document = decode_message(value)
            items = list(decode_request(document))
        except FormatError:
            self.counters.undecodable += 1
            raise
        except Exception as error:
            # Strangers' bytes found a hole in the decoder; they must not stop what comes after them.
            self.counters.undecodable += 1
            raise FormatError(f"cannot be read as OTLP ({error!r:.200})") from error
        self.counters.metrics_skipped += not items and _is_metrics(document)
        found: dict[str, list[Span | LogRecord]] = {}
        for item in items:
            if isinstance(item, Span):
                found.setdefault(item.trace_id, []).append(slim(item))
            elif item.trace_id and is_message(item):
                found.setdefault(item.trace_id, []).append(item)
        return found

    def take(
        self, trace_id: str, items: Sequence[Any], *, memory: str | None, is_new: bool
    ) -> None:
        """Add what a message held of one trace.

        `memory` counts when the trace is not held; `is_new` is False for what was there already when
        that was remembered.
        """
        told = self._told.get(trace_id)
        if told is None:
            told = self._told[trace_id] = _Told.of(memory)
        told.changed |= is_new
        for item in items:
            told.speaks = told.speaks or isinstance(item, LogRecord) or speaks(item)
            self.buffer.add(item)

    def due(self, now_ns: int | None) -> DueTraces:
        """Return the traces to read at `now_ns`, in nanoseconds; None: all, since the end has come.

        The readings must be drawn to their end before anything else is called.
        """
        if now_ns is None:
            self._closing = True
            traces = self.buffer.drain("shutdown")
        else:
            traces = self.buffer.due(now_ns)
        forgotten = tuple(self._forgotten)
        self._forgotten.clear()
        return DueTraces(self._readings(traces, forgotten), forgotten)

    def statement(self) -> WireRecord | None:
        """Return the manifest of what was numbered and dropped, None when nothing was since the last."""
        standing = (self._seq, sum(self.counters.dropped.values()))
        if standing == self._stated:
            return None
        self._stated = standing
        drops = dict(self.counters.dropped)
        return encode_manifest(
            Manifest(self._producer_id, self._seq, self._now(), drops, closing=self._closing)
        )

    def _readings(
        self, traces: Sequence[GatheredTrace], forgotten: Sequence[str]
    ) -> Iterator[TraceReading]:
        for trace in traces:
            told = self._told[trace.trace_id]
            if told.changed:
                told.changed = False
                yield self._read(trace, told)
        for trace_id in forgotten:
            self._told.pop(trace_id, None)

    def _read(self, trace: GatheredTrace, told: _Told) -> TraceReading:
        self.counters.traces_read += 1
        told.readings += 1
        trace.runs = {**told.runs, **trace.runs}
        records = [
            record
            for run_id, case in self._cases(trace)
            if (record := self._record(run_id, case, told)) is not None
        ]
        told.runs = trace.runs
        return TraceReading(trace.trace_id, tuple(records), told.memory())

    def _cases(self, trace: GatheredTrace) -> list[tuple[str, CaseData]]:
        assembler = Assembler(recorder_version=self._version)
        try:
            return [
                (item.run_id, case)
                for item in observe_gathered(trace)
                for case in assembler.feed(take(item, self._config.field_max_bytes)[0])
            ]
        except Exception:
            # Other people's attributes led a convention astray: this trace is lost, no other.
            _LOG.exception("trace %s cannot be read", trace.trace_id)
            self._drop("internal_error")
            return []

    def _record(self, run_id: str, case: CaseData, told: _Told) -> WireRecord | None:
        """Return the record of a turn; None when it is not to be kept or is there already."""
        case = {**case, "source": {**case["source"], "revision": told.readings}}
        before = told.turns.get(run_id)
        try:
            finished = self._finisher.finish(case)
            if before is not None:
                finished = _named_as(finished, *before[:2])
            digest = _digest(finished)
            if before is not None and before[2] == digest:
                return None
            record = self._finisher.encode(
                finished, producer_id=self._producer_id, seq=self._seq + 1, time=self._now()
            )
        except Dropped as dropped:
            self._drop(dropped.reason)
            return None
        except Exception:
            # One odd turn must not stop the others.
            _LOG.exception("the turn of run %s cannot be recorded", run_id)
            self._drop("internal_error")
            return None
        self._seq += 1
        if before is None:
            self.counters.turns += 1
        else:
            self.counters.revisions += 1
        (turn,) = finished["actualConversation"]
        told.turns[run_id] = [finished["evalId"], turn["invocationId"], digest]
        return record

    def _drop(self, reason: str) -> None:
        self.counters.dropped[reason] = self.counters.dropped.get(reason, 0) + 1


def _limits(config: RecorderConfig) -> TraceLimits:
    return TraceLimits(
        max_traces=config.open_max_turns,
        max_bytes=config.open_max_bytes,
        idle_seconds=config.idle_timeout_seconds,
    )


def _is_metrics(document: Any) -> bool:
    return isinstance(document, Mapping) and (
        "resourceMetrics" in document or "resource_metrics" in document
    )


def _named_as(case: CaseData, eval_id: str, invocation_id: str) -> CaseData:
    """Return the turn under the names that it was told by first.

    A span that comes late may know the session's or the turn's name: a second turn it is not.
    """
    (turn,) = case["actualConversation"]
    if (case["evalId"], turn["invocationId"]) == (eval_id, invocation_id):
        return case
    turn = {**turn, "invocationId": invocation_id}
    if case["evalId"] != eval_id:
        turn["capture"] = {**turn.get("capture", {}), "sessionId": "synthesized"}
    return {**case, "evalId": eval_id, "actualConversation": [turn]}


def _digest(case: CaseData) -> str:
    # Of what is written, never of what was redacted: it must not serve to confirm a guess.
    source = {key: value for key, value in case["source"].items() if key not in _VOLATILE}
    text = canonical_json({**case, "source": source})
    return hashlib.sha256(text.encode("utf-8", "backslashreplace")).hexdigest()[:16]
