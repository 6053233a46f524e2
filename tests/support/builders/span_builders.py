"""Spans and log records for tests, with generated ids and times."""

import base64
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from evaltap.recorder.assembly.assembler import Assembler
from evaltap.recorder.telemetry.spans import LogRecord, Span, SpanEvent
from evaltap.recorder.traces.reader import observe_trace

TRACE = "ab" * 16
MILLISECOND = 1_000_000


class TraceBuilder:
    """Adds spans to one trace; each takes the next milliseconds, and its parent lasts as long."""

    def __init__(self, scope: str = "test", trace_id: str = TRACE, **resource: Any) -> None:
        self.scope, self.trace_id, self.resource = scope, trace_id, resource
        self.spans: dict[str, Span] = {}
        self.logs: list[LogRecord] = []
        self._numbers = itertools.count(1)
        self._now = 1_700_000_000_000_000_000

    def span(
        self,
        name: str,
        parent: str | None = None,
        attributes: Mapping[str, Any] | None = None,
        *,
        events: Sequence[tuple[str, Mapping[str, Any]]] = (),
        error: str | None = None,
        scope: str | None = None,
    ) -> str:
        """Add a finished span and return its id."""
        span_id = f"{next(self._numbers):016x}"
        start = self._now = self._now + MILLISECOND
        end = self._now = self._now + MILLISECOND
        self.spans[span_id] = Span(
            self.trace_id,
            span_id,
            name,
            start,
            end,
            parent_id=parent,
            attributes=dict(attributes or {}),
            events=tuple(SpanEvent(event, start, dict(content)) for event, content in events),
            status_code=2 if error is not None else 0,
            status_message=error or "",
            scope=scope or self.scope,
            resource=self.resource,
        )
        self._stretch(parent, end)
        return span_id

    def beside(
        self, other: str, name: str, attributes: Mapping[str, Any], *, scope: str = "another"
    ) -> str:
        """Add a span of another instrumentation that lasts as long as `other`, under the same parent."""
        span_id = self.span(name, self.spans[other].parent_id, attributes, scope=scope)
        start, end = self.spans[other].start_ns, self.spans[other].end_ns
        self.spans[span_id] = replace(self.spans[span_id], start_ns=start, end_ns=end)
        return span_id

    def log(self, span_id: str, event_name: str, body: Any = None, **attributes: Any) -> None:
        """Add a log record written inside of a span."""
        self._now += MILLISECOND
        self.logs.append(LogRecord(self.trace_id, span_id, self._now, event_name, body, attributes))

    def turns(self) -> list[dict[str, Any]]:
        """Return the cases of the trace."""
        return cases_of(list(self.spans.values()), self.logs)

    def turn(self) -> dict[str, Any]:
        """Return the only turn of the trace."""
        (case,) = self.turns()
        (turn,) = case["actualConversation"]
        found: dict[str, Any] = turn
        return found

    def _stretch(self, span_id: str | None, end_ns: int) -> None:
        while span_id is not None and span_id in self.spans:
            span = self.spans[span_id]
            if span.end_ns >= end_ns:
                return
            self.spans[span_id] = replace(span, end_ns=end_ns)
            span_id = span.parent_id


def cases_of(spans: Sequence[Span], logs: Sequence[LogRecord] = ()) -> list[dict[str, Any]]:
    """Return the cases of the runs of one trace."""
    assembler = Assembler()
    return [
        case
        for run in observe_trace(spans, logs)
        for observation in run
        for case in assembler.feed(observation)
    ]


def words(turn: Mapping[str, Any], key: str) -> str | None:
    """Return the text of a message of a turn, None when it has none."""
    message = turn.get(key)
    return message["content"] if message is not None else None


def tools(turn: Mapping[str, Any]) -> list[tuple[Any, Any, Any, Any]]:
    """Return id, name, arguments and result of each tool call."""
    return [
        (tool.get("id"), tool["name"], tool.get("arguments"), tool.get("result"))
        for tool in turn.get("tools", [])
    ]


def intermediate(turn: Mapping[str, Any]) -> list[str]:
    """Return the intermediate texts."""
    return [message["content"] for message in turn.get("intermediateResponses", [])]


def in_base64(value: Any) -> Any:
    """Return an OTLP/JSON value with its ids as in protobuf's own JSON."""
    if isinstance(value, dict):
        return {
            key: base64.b64encode(bytes.fromhex(item)).decode()
            if key in ("traceId", "spanId", "parentSpanId") and isinstance(item, str)
            else in_base64(item)
            for key, item in value.items()
        }
    return [in_base64(item) for item in value] if isinstance(value, list) else value
