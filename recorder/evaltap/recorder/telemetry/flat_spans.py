"""Helpers that convert spans from the exports of tracing products to OTLP's form."""

import hashlib
import json
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

from evaltap.schemas.data import JsonObject

Entry = tuple[JsonObject, str, JsonObject]
"""Resource attributes, instrumentation scope and the span."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


def mapping(value: object) -> Mapping[str, object]:
    """Return an object; empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def objects(value: object) -> list[JsonObject]:
    """Return the objects of a list; none for anything else."""
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def decoded(value: object) -> object:
    """Return the value of JSON text; anything else unchanged."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except (ValueError, RecursionError):
        return value


def texts(values: Mapping[str, object]) -> JsonObject:
    """Return the present values as an SDK writes them: texts unchanged, other values as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
        if value is not None and value != {}
    }


def identifier(given: object, digits: int) -> str:
    """Return an id with the hex digits of a trace or span id; an id that is not hexadecimal is hashed."""
    text = str(given).replace("-", "").lower()
    if len(text) == digits and set(text) <= set("0123456789abcdef") and text.strip("0"):
        return text
    return hashlib.sha256(str(given).encode()).hexdigest()[:digits]


def entry_of(
    resource: JsonObject,
    scope: str,
    *,
    ids: tuple[object, object, object],
    name: object,
    times: tuple[object, object],
    attributes: object,
    events: object = (),
    status: JsonObject | None = None,
) -> Entry:
    """Return a span in OTLP's form.

    `ids` are those of its trace, itself and its parent; `times` are its start and its end.  An event has
    `name`, `timestamp` and `attributes`.
    """
    trace_id, span_id, parent_id = ids
    start, end = map(nanoseconds, times)
    return (
        resource,
        scope,
        {
            "traceId": trace_id,
            "spanId": span_id,
            "parentSpanId": parent_id,
            "name": name,
            "startTimeUnixNano": start,
            "endTimeUnixNano": end,
            "attributes": pairs(attributes),
            "events": [
                {
                    "name": event.get("name"),
                    "timeUnixNano": nanoseconds(event.get("timestamp")),
                    "attributes": pairs(event.get("attributes")),
                }
                for event in objects(events)
            ],
            "status": status or {},
        },
    )


def pairs(values: object) -> list[JsonObject]:
    """Return attributes in OTLP's form."""
    return [{"key": str(key), "value": otlp_value(one)} for key, one in mapping(values).items()]


def otlp_value(value: object) -> object:
    """Return a value in OTLP's form; objects are lists of pairs there."""
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": pairs(value)}}
    if isinstance(value, list):
        return {"arrayValue": {"values": [*map(otlp_value, value)]}}
    return value


def nanoseconds(moment: object) -> object:
    """Return a time in nanoseconds since the epoch, interpreted as UTC if it has no time zone.

    Return a time that is not ISO 8601 unchanged, for the OTLP reader to reject.
    """
    if not isinstance(moment, str):
        return moment
    try:
        found = datetime.fromisoformat(moment)
    except ValueError:
        return moment
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return ((found - _EPOCH) // timedelta(microseconds=1)) * 1000


def from_milliseconds(moment: object) -> object:
    """Return a time that may be written in milliseconds since the epoch in nanoseconds; others unchanged."""
    if isinstance(moment, int | float) and 0 <= moment < 1e14:
        return round(moment * 1000) * 1000
    return moment
