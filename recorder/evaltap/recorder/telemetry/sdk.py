"""Copies the fields of OpenTelemetry SDK spans and log records on the agent's thread, as `Span`s."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from evaltap.recorder.telemetry.spans import RESOURCE_KEYS, LogRecord, Span, SpanEvent, plain
from evaltap.schemas.data import JsonObject

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.sdk.util.instrumentation import InstrumentationScope

SpanFields = tuple[
    int,
    int,
    int | None,
    str,
    int | None,
    int | None,
    Mapping[str, object],
    Iterable[object],
    int,
    str | None,
    "InstrumentationScope | None",
    "Resource",
]
"""A snapshot of an SDK span: trace id, span id, parent id, name, start and end (None while it is
open), attributes, events, status code and message, scope, resource.

The span itself is some ten objects that the garbage collector revisits for as long as they wait;
this is one.
"""


def copy_fields(span: Any) -> SpanFields:  # Any: its private fields, or another SDK's
    """Return the fields of a span; duck-typed, so the SDK need not be imported here.

    Called on the agent's thread for every span, so it does as little as possible: 0.15 us through
    the SDK's private fields, against 2.8 us through its properties, which lock and copy. Falls back
    to the properties for other SDKs. `span_of` copies the attributes.
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
            # An ended span takes no more events. Copying 100,000 would keep the agent waiting for 20 ms.
            span._events._dq if span._end_time is not None else tuple(span._events._dq),
            status._status_code._value_,
            status._description,
            span._instrumentation_scope,
            span._resource,
        )
    except (AttributeError, TypeError):
        return _copy_public_fields(span)


def _copy_public_fields(span: Any) -> SpanFields:
    """Copy a span's fields through its public properties."""
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


def trace_id_of(item: object) -> int | None:
    """Return the trace id of the fields from `copy_fields` or of a span object; None when unknown."""
    if type(item) is tuple:
        found = item[0] if item else None
    else:
        found = getattr(getattr(getattr(item, "span", item), "context", item), "trace_id", None)
    return found if isinstance(found, int) else None


def _any(scope: str, name: str, attributes: Iterable[str]) -> bool:
    return True


def span_of(fields: SpanFields, is_read: Callable[[str, str, Iterable[str]], bool] = _any) -> Span:
    """Return the plain span; its content is dropped if no convention reads it."""
    trace_id, span_id, parent_id, name, start_ns, end_ns, attributes, events = fields[:8]
    code, message, scope, resource = fields[8:]
    scope_name = scope.name if scope is not None else ""
    # Copied, as the span may still be open.
    attributes = dict(attributes)
    has_content = is_read(scope_name, name, attributes)
    return Span(
        _trace_id(trace_id),
        format(span_id, "016x"),
        name,
        start_ns or 0,
        end_ns or 0,
        None if parent_id is None else format(parent_id, "016x"),
        _plain(attributes) if has_content else {},
        _events(events) if has_content else (),
        code,
        message or "",
        scope_name,
        _resource(resource),
    )


@lru_cache(maxsize=1024)
def _trace_id(number: int) -> str:
    """Return a trace id as text, the same object for all spans of a trace."""
    return format(number, "032x")


_resources: dict[int, tuple["Resource", Mapping[str, object]]] = {}
"""The stored form of recent resources, by identity: hashing one would serialize it as JSON."""


def _resource(resource: "Resource") -> Mapping[str, object]:
    """Return a resource's stored form, one copy for all its spans."""
    known = _resources.get(id(resource))
    if known is None or known[0] is not resource:
        if len(_resources) >= 16:
            _resources.clear()
        known = (resource, {key: resource.attributes.get(key) for key in RESOURCE_KEYS})
        _resources[id(resource)] = known
    return known[1]


def _events(events: Iterable[Any]) -> Sequence[SpanEvent]:
    return tuple(
        SpanEvent(event.name, event.timestamp, _plain(event.attributes)) for event in events
    )


def log_from_sdk(data: Any) -> LogRecord:
    """Copy an SDK log record (`ReadableLogRecord`, or the older `LogData`), also duck-typed."""
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


def _plain(attributes: Mapping[str, object] | None) -> JsonObject:
    if not attributes:
        return {}
    copied = attributes if type(attributes) is dict else dict(attributes)
    for key, value in copied.items():
        if type(value) not in _ATOMS:
            return {key: plain(value) for key, value in copied.items()}
    return copied


_ATOMS: Final = frozenset({str, bool, int, float, type(None)})
