"""Turns spans and log records into observations, for the recorder's background thread.

The source behind `CaseSpanProcessor`, testable without threads. Spans unrelated to agents are kept
without attributes, since only their position in the tree matters.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

from evaltap.recorder.conventions import is_read
from evaltap.recorder.observation import RunEnded, RunStarted, WholeRun
from evaltap.recorder.telemetry.sdk import copy_fields, log_from_sdk, span_of, trace_id_of
from evaltap.recorder.telemetry.spans import LogRecord, Span
from evaltap.recorder.traces.buffer import GatheredTrace, TraceBuffer, TraceLimits
from evaltap.recorder.traces.client_calls import ClientCalls
from evaltap.recorder.traces.reader import observe_trace


@dataclass(frozen=True, slots=True)
class LogWritten:
    """A log record was written; submitted by `CaseLogProcessor`."""

    data: Any


@dataclass(frozen=True, slots=True)
class FlushTraces:
    """Read the traces whose roots have ended now, without the quiet period."""


class TraceSource:
    """Buffers SDK spans by trace and reads the runs in each trace once it is complete.

    Used by one thread. `process`, `tick` and `close` return the runs that are due.
    """

    def __init__(self, limits: TraceLimits | None = None) -> None:
        self.buffer = TraceBuffer(limits)
        self._client_calls = ClientCalls()
        self._due: deque[GatheredTrace] = deque()
        """Traces to read, and the runs read from the last one: a caller may stop between two of them."""
        self._runs: deque[WholeRun] = deque()

    def process(self, item: object) -> Iterable[WholeRun]:
        """Process one item; the runs it completes are returned by a later `tick`.

        An SDK span comes as the fields from `copy_fields`, at the start and end of a local root or
        at the end of any other span, or as the ended span itself.
        """
        if type(item) is tuple:
            span = span_of(item, is_read)
            if span.end_ns:
                self._add(span)
            else:
                self._client_calls.note(span)
                self.buffer.begin(span)
        elif isinstance(item, FlushTraces):
            return self._read(self._merged(self.buffer.complete()))
        elif isinstance(item, LogWritten):
            record = log_from_sdk(item.data)
            if is_message(record):
                self.buffer.add(record)
        elif isinstance(item, LogRecord):
            self.buffer.add(item)
        elif isinstance(item, Span):
            self._add(item)
        elif hasattr(item, "get_span_context"):
            # From an exporter, which gets ended spans on its own thread.
            self._add(span_of(copy_fields(item), is_read))
        return ()

    def _merged(self, due: list[GatheredTrace]) -> list[GatheredTrace]:
        return self._client_calls.merge(due, self.buffer.unread)

    def _add(self, span: Span) -> None:
        self._client_calls.note(span)
        self.buffer.add(span)

    def tick(self, now_ns: int) -> Iterable[WholeRun]:
        """Return the runs of the traces that are complete or overdue at `now_ns`."""
        return self._read(self._merged(self.buffer.due(now_ns)))

    def close(self) -> Iterable[WholeRun]:
        """Return the runs of everything still held; unfinished ones are incomplete."""
        due = self._merged(self.buffer.drain("shutdown"))
        return self._read([*due, *self._client_calls.release()])

    def abandon(self, items: Sequence[object]) -> int:
        """Discard everything held and these items; count each trace that an agent may have written."""
        held = [*self._due, *self.buffer.abandon(), *self._client_calls.release()]
        lost = {trace.trace_id for trace in held if any(map(has_messages, trace.spans))}
        lost.update(filter(None, map(_trace_with_messages, items)))
        runs = len(self._runs)
        self._due.clear()
        self._runs.clear()
        return runs + len(lost)

    def _read(self, due: Iterable[GatheredTrace]) -> Iterator[WholeRun]:
        """Read these traces and those left before; one that fails does not affect the others.

        The first error is raised at the end, so that the recorder counts it.
        """
        self._due.extend(due)
        errors: list[Exception] = []
        while self._due or self._runs:
            if self._runs:
                yield self._runs.popleft()
                continue
            try:
                self._runs.extend(read_runs(self._due[0]))
            except Exception as error:
                # A convention failed on unexpected attributes, which it should not.
                errors.append(error)
            self._due.popleft()
        if errors:
            raise errors[0]


def has_messages(span: Span) -> bool:
    """Return whether any convention could read the span."""
    return is_read(span.scope, span.name, span.attributes)


def without_unread_attributes(span: Span) -> Span:
    """Return the span without its content if no convention could read it."""
    if has_messages(span) or not (span.attributes or span.events):
        return span
    return replace(span, attributes={}, events=())


def is_message(record: LogRecord) -> bool:
    """Return whether a log record carries message content from within a span."""
    return bool(record.span_id) and record.event_name.startswith("gen_ai.")


def _trace_with_messages(item: object) -> str | None:
    """Return the trace id of an item that an agent may have written."""
    if isinstance(item, Span):
        return item.trace_id if has_messages(item) else None
    if isinstance(item, LogRecord):
        return item.trace_id if is_message(item) else None
    trace_id = trace_id_of(item.data if isinstance(item, LogWritten) else item)
    return None if trace_id is None else format(trace_id, "032x")


def read_runs(trace: GatheredTrace) -> list[WholeRun]:
    """Return the current runs of a trace, and note their ids in it."""
    spans = [*trace.spans, *trace.open_roots.values()]
    runs = observe_trace(spans, trace.logs, close_reason=trace.reason, known_runs=trace.runs)
    read: list[WholeRun] = []
    for events in runs:
        start, end = events[0], events[-1]
        if isinstance(start, RunStarted) and start.root_span_id is not None:
            trace.runs[start.root_span_id] = start.run_id
        if trace.dropped and isinstance(end, RunEnded):
            # A turn without one of its calls would look complete and get a wrong score.
            events[-1] = replace(end, status="incomplete", close_reason="evicted")
        read.append(WholeRun(start.run_id, start.time_ns, tuple(events)))
    return read
