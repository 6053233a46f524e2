"""Spans and log records as the recorder sees them: plain, free of any SDK or wire format.

Two ways lead here: `evaltap.recorder.otlp` decodes OTLP/JSON, and `span_from_sdk` copies what an
OpenTelemetry SDK span shows.  Ids are lower-case hex; times are nanoseconds since the epoch;
attribute values are JSON values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

SERVICE_NAME = "service.name"
STATUS_ERROR = 2
"""`status.code` of a failed span, in OTLP and in the SDK alike."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span: an exception, a message."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Span:
    """One finished span; `end_ns` is 0 while it is still open."""

    trace_id: str
    span_id: str
    name: str
    start_ns: int
    end_ns: int
    parent_id: str | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    status_code: int = 0
    status_message: str = ""
    scope: str = ""
    resource: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One log record; `span_id` is empty when it was written outside of any span."""

    trace_id: str
    span_id: str
    time_ns: int
    event_name: str
    body: Any = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    scope: str = ""


def span_from_sdk(span: Any, *, content: bool = True) -> Span:
    """Copy an SDK `ReadableSpan`; duck-typed, so the SDK need not be imported here.

    Called from the recorder's thread.  The SDK span is read only, never changed.  Without `content`
    attributes and events are left out.
    """
    context = span.get_span_context()
    status = span.status
    scope = span.instrumentation_scope
    return Span(
        trace_id=format(context.trace_id, "032x"),
        span_id=format(context.span_id, "016x"),
        parent_id=format(span.parent.span_id, "016x") if span.parent is not None else None,
        name=span.name,
        start_ns=span.start_time or 0,
        end_ns=span.end_time or 0,
        attributes=_plain(span.attributes) if content else {},
        events=tuple(
            SpanEvent(event.name, event.timestamp, _plain(event.attributes))
            for event in span.events
        )
        if content
        else (),
        status_code=status.status_code.value,
        status_message=status.description or "",
        scope=scope.name if scope is not None else "",
        resource={SERVICE_NAME: span.resource.attributes.get(SERVICE_NAME)},
    )


def log_from_sdk(data: Any) -> LogRecord:
    """Copy an SDK log record (`ReadableLogRecord`, or the older `LogData`), duck-typed too."""
    record = data.log_record
    scope = data.instrumentation_scope
    attributes = _plain(record.attributes)
    return LogRecord(
        trace_id=format(record.trace_id or 0, "032x"),
        span_id=format(record.span_id or 0, "016x") if record.span_id else "",
        time_ns=record.timestamp or record.observed_timestamp or 0,
        event_name=getattr(record, "event_name", None) or str(attributes.get("event.name") or ""),
        body=plain(record.body),
        attributes=attributes,
        scope=scope.name if scope is not None else "",
    )


def canonical_json(value: Any) -> str:
    """Return text that is equal for equal JSON values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def plain(value: Any) -> Any:
    """Return a copy of the value made of JSON values only; what JSON has no word for becomes text."""
    if type(value) is str or value is None:
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int | float):
        return value
    return str(value)


def _plain(attributes: Mapping[str, Any] | None) -> dict[str, Any]:
    return {key: plain(value) for key, value in (attributes or {}).items()}
