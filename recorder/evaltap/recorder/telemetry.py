"""Spans and log records as the recorder sees them: plain, free of any SDK or wire format.

Two ways lead here: `evaltap.recorder.otlp` decodes OTLP/JSON, and `span_from_sdk` copies what an
OpenTelemetry SDK span shows.  Ids are lower-case hex; times are nanoseconds since the epoch;
attribute values are JSON values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

SERVICE_NAME = "service.name"
STATUS_ERROR = 2
"""`status.code` of a failed span, in OTLP and in the SDK alike."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span: an exception, a message."""

    name: str
    time_ns: int
    attributes: Mapping[str, Any] = field(default_factory=dict)


# Not frozen, but never changed: one is made of every span of the process, and freezing triples the cost.


@dataclass(slots=True)
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
    parent = span.parent
    return Span(
        _trace_id(context.trace_id),
        format(context.span_id, "016x"),
        span.name,
        span.start_time or 0,
        span.end_time or 0,
        format(parent.span_id, "016x") if parent is not None else None,
        _plain(span.attributes) if content else {},
        _events(span) if content else (),
        status.status_code.value,
        status.description or "",
        scope.name if scope is not None else "",
        _resource(span.resource),
    )


@lru_cache(maxsize=1024)
def _trace_id(number: int) -> str:
    """Return a trace id as text, the same object for all spans of a trace."""
    return format(number, "032x")


_resources: dict[int, tuple[Any, Mapping[str, Any]]] = {}
"""What is kept of the resources seen last, by their identity: to hash one is to write it as JSON."""


def _resource(resource: Any) -> Mapping[str, Any]:
    """Return what is kept of a resource, one copy for all its spans."""
    known = _resources.get(id(resource))
    if known is None or known[0] is not resource:
        if len(_resources) >= 16:
            _resources.clear()
        known = (resource, {SERVICE_NAME: resource.attributes.get(SERVICE_NAME)})
        _resources[id(resource)] = known
    return known[1]


def _events(span: Any) -> Sequence[SpanEvent]:
    # Most spans have none, and the SDK takes its time to say so.
    if not len(getattr(span, "_events", ("unknown",))):
        return ()
    return tuple(
        SpanEvent(event.name, event.timestamp, _plain(event.attributes)) for event in span.events
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
    if not attributes:
        return {}
    # The SDK's own copy is a plain dict, made at once; iterating over its mapping takes ten times as long.
    copy = getattr(attributes, "copy", None)
    found = attributes if copy is None else copy()
    copied: dict[str, Any] = found if type(found) is dict else dict(found)
    for key, value in copied.items():
        if type(value) not in _ATOMS:
            copied[key] = plain(value)
    return copied


_ATOMS: Final = frozenset({str, bool, int, float, type(None)})
