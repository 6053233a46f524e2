"""Turns telemetry messages of a topic into turn records: buffers traces, reads and processes them.

The assembling side of a raw OTLP topic. The topic's reader calls it from one thread, passes the
time, and stores what must survive a restart; there is no thread, clock or file here. Redaction,
sampling and limits are the recorder's own.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from evaltap.recorder.assembly.case import case_of, digest_of, installed_version
from evaltap.recorder.assembly.continuations import revisions_before
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.delivery.record_writer import RecordWriter, utc_now
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.recorder.faults import DropCaseError
from evaltap.recorder.observation import snapshot_event
from evaltap.recorder.telemetry.otlp_json import decode_message, decode_request
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.buffer import GatheredTrace, TraceBuffer, TraceLimits
from evaltap.recorder.traces.source import (
    has_messages,
    is_message,
    read_runs,
    without_unread_attributes,
)
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import FormatError
from evaltap.schemas.wire.record import WireRecord
from evaltap.schemas.wire.telemetry import DueTraces, TraceReading

_LOG = logging.getLogger("evaltap.recorder")


@dataclass(slots=True)
class TopicCounters:
    """The outcome of messages; only ever increases."""

    messages: int = 0
    metrics_skipped: int = 0
    """Messages with metrics."""
    undecodable: int = 0
    traces_read: int = 0
    turns: int = 0
    revisions: int = 0
    dropped: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _TraceState:
    """The results of earlier readings of a trace; serialized as text to survive a restart."""

    readings: int = 0
    runs: dict[str, str] = field(default_factory=dict)
    """Root span id to run id."""
    turns: dict[str, list[str]] = field(default_factory=dict)
    """Run id to the turn as it was written: its eval id, its invocation id and a digest."""
    has_messages: bool = False
    changed: bool = False
    """Whether items arrived after the last reading."""

    @classmethod
    def of(cls, memory: str | None) -> "_TraceState":
        if not memory:
            return cls()
        readings, runs, turns = orjson.loads(memory)
        return cls(readings, runs, turns, has_messages=True)

    def memory(self) -> str | None:
        if not self.has_messages:
            return None
        return orjson.dumps([self.readings, self.runs, self.turns]).decode()


class TopicTraces:
    """Buffers traces and turns them into records, numbered for one producer.

    A turn's revision is the number of the reading of its trace in which it last changed, so it is
    the same in every process that restores its predecessor's memory.
    """

    def __init__(
        self, config: RecorderConfig, *, producer_id: str, limits: TraceLimits | None = None
    ) -> None:
        self.counters = TopicCounters()
        self._config = config
        self._processor = CaseProcessor(config, lambda: configured_redactor(config))
        self._written: list[WireRecord] = []
        self._writer = RecordWriter(
            self._processor, self._written.extend, producer_id=producer_id, now=utc_now
        )
        self._forgotten: list[str] = []
        self.buffer = TraceBuffer(limits or _limits(config), on_forget=self._forgotten.append)
        self._states: dict[str, _TraceState] = {}
        self._closing = False

    def decode(self, value: bytes) -> Mapping[str, Sequence[Span | LogRecord]]:
        """Return a message's relevant items by trace; raises FormatError for a poison message."""
        self.counters.messages += 1
        try:
            document = decode_message(value)
            items = list(decode_request(document))
        except FormatError:
            self.counters.undecodable += 1
            raise
        except Exception as error:
            # Foreign bytes exposed a decoder bug; they must not block the following messages.
            self.counters.undecodable += 1
            raise FormatError(f"cannot be read as OTLP ({error!r:.200})") from error
        self.counters.metrics_skipped += not items and _is_metrics(document)
        found: dict[str, list[Span | LogRecord]] = {}
        for item in items:
            if isinstance(item, Span):
                found.setdefault(item.trace_id, []).append(without_unread_attributes(item))
            elif item.trace_id and is_message(item):
                found.setdefault(item.trace_id, []).append(item)
        return found

    def withhold(self, record: WireRecord, detail: str) -> tuple[WireRecord, str]:
        """Return an unreadable message and the reason, without content that must not be stored."""
        return self._processor.process_unreadable(record, detail)

    def take(
        self, trace_id: str, items: Sequence[Any], *, memory: str | None, is_new: bool
    ) -> None:
        """Add a message's items for one trace.

        `memory` is used when the trace is not held; `is_new` is False for items already included in
        it.
        """
        state = self._states.get(trace_id)
        if state is None:
            state = self._states[trace_id] = _TraceState.of(memory)
        state.changed |= is_new
        for item in items:
            state.has_messages = (
                state.has_messages or isinstance(item, LogRecord) or has_messages(item)
            )
            self.buffer.add(item)

    def due(self, now_ns: int | None) -> DueTraces:
        """Return the traces to read at `now_ns`, in nanoseconds; None: all, at shutdown.

        Exhaust the readings before calling anything else.
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
        """Return the manifest of what was numbered and dropped, or None if unchanged since the last."""
        self._writer.write_manifest(self.counters.dropped, closing=self._closing)
        return next(iter(self._take_written()), None)

    def _readings(
        self, traces: Sequence[GatheredTrace], forgotten: Sequence[str]
    ) -> Iterator[TraceReading]:
        for trace in traces:
            state = self._states[trace.trace_id]
            if state.changed:
                state.changed = False
                yield self._read(trace, state)
        for trace_id in forgotten:
            self._states.pop(trace_id, None)

    def _read(self, trace: GatheredTrace, state: _TraceState) -> TraceReading:
        self.counters.traces_read += 1
        state.readings += 1
        trace.runs = {**state.runs, **trace.runs}
        for run_id, case in self._cases(trace, state):
            self._write(run_id, case, state)
        while self._writer.write_batch():
            pass
        state.runs = trace.runs
        return TraceReading(trace.trace_id, self._take_written(), state.memory())

    def _take_written(self) -> tuple[WireRecord, ...]:
        written = tuple(self._written)
        self._written.clear()
        return written

    def _cases(self, trace: GatheredTrace, state: _TraceState) -> list[tuple[str, CaseData]]:
        limit, reasoning = self._config.field_max_bytes, self._config.capture_reasoning
        try:
            return [
                (
                    run.run_id,
                    case_of(
                        [
                            snapshot_event(event, limit, reasoning=reasoning)[0]
                            for event in run.events
                        ],
                        revision=revisions_before(run.events) + state.readings,
                        recorder_version=installed_version(),
                    ),
                )
                for run in read_runs(trace)
            ]
        except Exception:
            # A convention failed on unexpected attributes: only this trace is lost.
            _LOG.exception("trace %s cannot be read", trace.trace_id)
            self._drop("internal_error")
            return []

    def _write(self, run_id: str, case: CaseData, state: _TraceState) -> None:
        """Write the record of a turn, unless it is dropped or unchanged."""
        before = state.turns.get(run_id)
        try:
            processed = self._processor.process(case)
            if before is not None:
                processed = _named_as(processed, *before[:2])
            # Of the written content, not the redacted original: it must not help to confirm a
            # guess.
            digest = digest_of(processed)
            if before is not None and before[2] == digest:
                return
            self._writer.add_processed(processed)
        except DropCaseError as dropped:
            self._drop(dropped.reason)
            return
        except Exception:
            # One bad turn must not stop the others.
            _LOG.exception("the turn of run %s cannot be recorded", run_id)
            self._drop("internal_error")
            return
        if before is None:
            self.counters.turns += 1
        else:
            self.counters.revisions += 1
        (turn,) = processed["actualConversation"]
        state.turns[run_id] = [processed["evalId"], turn["invocationId"], digest]

    def _drop(self, reason: str) -> None:
        self.counters.dropped[reason] = self.counters.dropped.get(reason, 0) + 1


def _limits(config: RecorderConfig) -> TraceLimits:
    return TraceLimits(
        max_traces=config.open_max_turns,
        max_bytes=config.open_max_bytes,
        idle_seconds=config.idle_timeout_seconds,
    )


def _is_metrics(document: object) -> bool:
    return isinstance(document, Mapping) and (
        "resourceMetrics" in document or "resource_metrics" in document
    )


def _named_as(case: CaseData, eval_id: str, invocation_id: str) -> CaseData:
    """Return the turn with the ids it was first written under.

    A late span may know the session's or turn's id, which must not create a second turn.
    """
    (turn,) = case["actualConversation"]
    if (case["evalId"], turn["invocationId"]) == (eval_id, invocation_id):
        return case
    turn = {**turn, "invocationId": invocation_id}
    if case["evalId"] != eval_id:
        turn["capture"] = {**turn.get("capture", {}), "sessionId": "synthesized"}
    return {**case, "evalId": eval_id, "actualConversation": [turn]}
