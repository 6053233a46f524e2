"""Spans and log records to observations, for the recorder's background thread.

The source side of `CaseSpanProcessor`; testable without any thread.  Spans that have nothing to do
with agents are kept without their attributes, since only their place in the tree matters.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from evaltap.recorder.assembler import RunReread
from evaltap.recorder.conventions import SPEAKING_NAMES, SPEAKING_SCOPES, speaks_by_name
from evaltap.recorder.observation import Observation, RunEnded, RunStarted
from evaltap.recorder.telemetry import (
    LogRecord,
    SeenSpan,
    Span,
    log_from_sdk,
    seen_span,
    span_of,
    take_down,
)
from evaltap.recorder.trace import observe_trace
from evaltap.recorder.trace_buffer import GatheredTrace, TraceBuffer, TraceLimits

AGENT_PREFIXES = (
    "agent.",
    "ai.",
    "enduser.",
    "gcp.vertex.agent",
    "gen_ai.",
    "input.",
    "langfuse.",
    "langsmith.",
    "llm.",
    "logfire.span_type",
    "mcp.",
    "metadata",
    "openinference.",
    "output.",
    "pydantic_ai.",
    "session.",
    "tool",
    "traceloop.",
    "trpc.",
    "user.",
)
"""Beginnings of attribute names that some convention reads."""


@dataclass(frozen=True, slots=True)
class LogWritten:
    """A log record was written; the item that `CaseLogProcessor` hands over."""

    data: Any


@dataclass(frozen=True, slots=True)
class TracesWanted:
    """The traces whose roots have ended are wanted now, without the quiet period."""


class TraceSource:
    """Gathers SDK spans by trace and tells the runs in them, once each trace is complete.

    Used by one thread.  `process`, `tick` and `close` return the observations that are due.
    """

    def __init__(self, limits: TraceLimits | None = None) -> None:
        self.buffer = TraceBuffer(limits)

    def process(self, item: Any) -> Iterable[Observation]:
        """Take one item; what it completes comes out of a later `tick`.

        An SDK span comes as what `take_down` made of it, when its local root began and when it
        ended, or as it is when it has ended.
        """
        if type(item) is tuple:
            seen = seen_span(item)
            if seen.end_ns is None:
                self.buffer.begin(_slim_span(seen))
            else:
                self.buffer.add(_slim_span(seen))
        elif isinstance(item, TracesWanted):
            return _observe_each(self.buffer.complete())
        elif isinstance(item, LogWritten):
            record = log_from_sdk(item.data)
            if is_message(record):
                self.buffer.add(record)
        elif isinstance(item, Span | LogRecord):
            self.buffer.add(item)
        elif hasattr(
            item, "get_span_context"
        ):  # of an exporter, which has it from a thread of its own
            self.buffer.add(_slim_span(seen_span(take_down(item))))
        return ()

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return the observations of the traces that are complete or overdue at `now_ns`."""
        return _observe_each(self.buffer.due(now_ns))

    def close(self) -> Iterable[Observation]:
        """Return the observations of everything still held; what had not ended is incomplete."""
        return _observe_each(self.buffer.drain("shutdown"))


def speaks(span: Span) -> bool:
    """Tell whether some convention could read anything from the span."""
    return any(map(_is_read, span.attributes)) or speaks_by_name(span)


def slim(span: Span) -> Span:
    """Return the span without its content when no convention could read anything from it."""
    if speaks(span) or not (span.attributes or span.events):
        return span
    return replace(span, attributes={}, events=())


def is_message(record: LogRecord) -> bool:
    """Tell whether a log record carries what an agent or a model said within a span."""
    return bool(record.span_id) and record.event_name.startswith("gen_ai.")


def _slim_span(seen: SeenSpan) -> Span:
    """Return `slim` of a span; what nobody reads is not kept."""
    scope = seen.scope
    if (
        (scope is None or scope.name not in SPEAKING_SCOPES)
        and not seen.name.startswith(SPEAKING_NAMES)
        and not any(map(_is_read, seen.attributes))
    ):
        return span_of(seen, content=False)
    return span_of(seen)


@lru_cache(maxsize=4096)
def _is_read(key: str) -> bool:
    return key.startswith(AGENT_PREFIXES)


def _observe_each(traces: Iterable[GatheredTrace]) -> Iterator[Observation]:
    """Read trace after trace; one that cannot be read costs none of the others.

    The first error is raised when all are done, so that the recorder counts it.
    """
    errors: list[Exception] = []
    for trace in traces:
        try:
            yield from list(observe_gathered(trace))
        except Exception as error:
            # Other people's attributes led a convention astray; it should not have been.
            errors.append(error)
    if errors:
        raise errors[0]


def observe_gathered(trace: GatheredTrace) -> Iterator[Observation]:
    """Read one trace; runs that were told before are told again, and take the place of the first."""
    spans = [*trace.spans, *trace.open_roots.values()]
    told = set(trace.runs.values())
    runs = observe_trace(spans, trace.logs, close_reason=trace.reason, known_runs=trace.runs)
    for run in runs:
        start = run[0]
        if isinstance(start, RunStarted) and start.root_span_id is not None:
            trace.runs[start.root_span_id] = start.run_id
        again = isinstance(start, RunStarted) and start.run_id in told
        yield reread(start) if again and isinstance(start, RunStarted) else start
        for item in run[1:]:
            if trace.dropped and isinstance(item, RunEnded):
                # A turn that misses a call would look complete and be scored wrong.
                item = replace(item, status="incomplete", close_reason="evicted")
            yield item


def reread(start: RunStarted) -> RunReread:
    """Return the same start as one that supersedes what was observed before."""
    return RunReread(**{name: getattr(start, name) for name in RunStarted.__slots__})
