"""The recorder's spans and log records: plain, independent of any SDK or wire format.

They come from `otlp_json`, which decodes OTLP/JSON, and from `copy_fields` and `span_of`, which
copy OpenTelemetry SDK spans. Ids are lower-case hex; times are nanoseconds since the epoch;
attribute values are JSON values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import orjson

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
ENVIRONMENTS = ("deployment.environment.name", "deployment.environment")
"""The service's environment: the current attribute name and its predecessor."""
RESOURCE_KEYS = (SERVICE_NAME, SERVICE_VERSION, *ENVIRONMENTS)
"""The resource attributes that are read."""
STATUS_ERROR = 2
"""`status.code` of a failed span, in OTLP and in the SDK alike."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """An event of a span at one point in time: an exception, a message."""

    name: str
    time_ns: int
    attributes: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Span:
    """One finished span; `end_ns` is 0 while it is still open."""

    trace_id: str
    span_id: str
    name: str
    start_ns: int
    end_ns: int
    parent_id: str | None = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    events: Sequence[SpanEvent] = ()
    status_code: int = 0
    status_message: str = ""
    scope: str = ""
    resource: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LogRecord:
    """One log record; `span_id` is empty when it was emitted outside any span."""

    trace_id: str
    span_id: str
    time_ns: int
    event_name: str
    body: object = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    scope: str = ""


EVALUATION_EVENT = "gen_ai.evaluation.result"
OWN_SCOPE = "evaltap.evaluator"
"""The instrumentation scope of the scores that evaltap exports."""


def is_evaluation(item: Span | LogRecord) -> bool:
    """Return whether the item is about a score, which is not traffic."""
    return item.scope == OWN_SCOPE or (
        isinstance(item, LogRecord) and item.event_name == EVALUATION_EVENT
    )


def canonical_json(value: object) -> str:
    """Return text that is equal for equal JSON values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def canonical_bytes(value: object) -> bytes:
    """Return bytes that are equal for equal JSON values, whatever the order of their keys."""
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        return canonical_json(value).encode("utf-8", "backslashreplace")


def plain(value: object) -> object:
    """Return a copy made of JSON values only; other types become text."""
    if type(value) is str or value is None:
        return value
    if isinstance(value, tuple | list):
        return [plain(item) for item in value]
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, str | bool | int | float):
        return value
    return str(value)
