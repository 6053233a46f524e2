"""Spans and log records as the recorder sees them: plain, free of any SDK or wire format.

Two ways lead here: `evaltap.recorder.otlp` decodes OTLP/JSON, and `take_down` and `span_of` copy what
an OpenTelemetry SDK span shows.  Ids are lower-case hex; times are nanoseconds since the epoch;
attribute values are JSON values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, NamedTuple

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


class SeenSpan(NamedTuple):
    """What an SDK span held when it was looked at; `end_ns` is None of one that was still open.

    The span itself is some ten objects that the garbage collector has to look at again and again as
    long as they wait; what `take_down` makes of it is one.
    """

    trace_id: int
    span_id: int
    parent_id: int | None
    name: str
    start_ns: int | None
    end_ns: int | None
    attributes: dict[str, Any]
    events: Sequence[Any]
    status_code: int
    status_message: str | None
    scope: Any
    resource: Any


def seen_span(taken_down: tuple[Any, ...]) -> SeenSpan:
    """Name what `take_down` returned; the attributes are copied, as the span may still be open."""
    return SeenSpan._make((*taken_down[:6], dict(taken_down[6]), *taken_down[7:]))


def take_down(span: Any) -> tuple[Any, ...]:
    """Return the fields of a `SeenSpan`, in order; duck-typed, so the SDK need not be imported here.

    Called on the agent's thread for every span, so it makes as little as it can.  What the SDK's
    properties would do another time is left out where the SDK is as we know it; the fields get their
    names, and the attributes their copy, in `seen_span`, since both cost more than all the rest.
    """
    try:
        context, parent, status = span._context, span._parent, span._status
        return (
            context[0],
            context[1],
            None if parent is None else parent[1],
            span._name,
            span._start_time,
            span._end_time,
            span._attributes._dict,
            span.events if span._events._dq else (),
            status._status_code._value_,
            status._description,
            span._instrumentation_scope,
            span._resource,
        )
    except (AttributeError, TypeError):
        return _taken_down_as_shown(span)


def _taken_down_as_shown(span: Any) -> tuple[Any, ...]:
    """Take a span down by what every SDK shows."""
    context, parent, status = span.get_span_context(), span.parent, span.status
    return (
        context.trace_id,
        context.span_id,
        None if parent is None else parent.span_id,
        span.name,
        span.start_time,
        span.end_time,
        dict(span.attributes or {}),
        tuple(span.events),
        status.status_code.value,
        status.description,
        span.instrumentation_scope,
        span.resource,
    )


def trace_id_of(item: Any) -> int | None:
    """Return the trace of what `take_down` returned, or of what shows a span; None when unknown."""
    if type(item) is tuple:
        found = item[0] if item else None
    else:
        found = getattr(getattr(getattr(item, "span", item), "context", item), "trace_id", None)
    return found if isinstance(found, int) else None


def span_of(seen: SeenSpan, *, content: bool = True) -> Span:
    """Return the plain span; without `content` attributes and events are left out."""
    scope = seen.scope
    return Span(
        _trace_id(seen.trace_id),
        format(seen.span_id, "016x"),
        seen.name,
        seen.start_ns or 0,
        seen.end_ns or 0,
        None if seen.parent_id is None else format(seen.parent_id, "016x"),
        _plain(seen.attributes) if content else {},
        _events(seen.events) if content else (),
        seen.status_code,
        seen.status_message or "",
        scope.name if scope is not None else "",
        _resource(seen.resource),
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


def _events(events: Sequence[Any]) -> Sequence[SpanEvent]:
    return tuple(
        SpanEvent(event.name, event.timestamp, _plain(event.attributes)) for event in events
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
    copied = attributes if type(attributes) is dict else dict(attributes)
    for key, value in copied.items():
        if type(value) not in _ATOMS:
            return {key: plain(value) for key, value in copied.items()}
    return copied


_ATOMS: Final = frozenset({str, bool, int, float, type(None)})
