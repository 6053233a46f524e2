"""Spans and log records as the recorder sees them: plain, free of any SDK or wire format.

Two ways lead here: `otlp_json` decodes OTLP/JSON, and `copy_fields` and `span_of` copy what
an OpenTelemetry SDK span shows.  Ids are lower-case hex; times are nanoseconds since the epoch;
attribute values are JSON values.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

SERVICE_NAME = "service.name"
SERVICE_VERSION = "service.version"
ENVIRONMENTS = ("deployment.environment.name", "deployment.environment")
"""Where the service runs, by the name of today and by the one before."""
RESOURCE_KEYS = (SERVICE_NAME, SERVICE_VERSION, *ENVIRONMENTS)
"""What is read of a resource."""
STATUS_ERROR = 2
"""`status.code` of a failed span, in OTLP and in the SDK alike."""


@dataclass(frozen=True, slots=True)
class SpanEvent:
    """Something that happened at one moment of a span: an exception, a message."""

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
    """One log record; `span_id` is empty when it was written outside of any span."""

    trace_id: str
    span_id: str
    time_ns: int
    event_name: str
    body: object = None
    attributes: Mapping[str, object] = field(default_factory=dict)
    scope: str = ""


EVALUATION_EVENT = "gen_ai.evaluation.result"
OWN_SCOPE = "evaltap.evaluator"
"""The instrumentation scope under which evaltap sends scores."""


def is_evaluation(item: Span | LogRecord) -> bool:
    """Tell whether it speaks of a score: what is said of traffic is no traffic."""
    return item.scope == OWN_SCOPE or (
        isinstance(item, LogRecord) and item.event_name == EVALUATION_EVENT
    )


def canonical_json(value: object) -> str:
    """Return text that is equal for equal JSON values, whatever the order of their keys."""
    return json.dumps(value, sort_keys=True, ensure_ascii=False, default=str)


def plain(value: object) -> object:
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
