"""Spans as flat rows: those of Logfire's query API, and lists of spans that programs dump.

Sources: the columns of Logfire's table `records` (`GET /v1/query`, whose JSON lists rows, or columns with
their `values`), and lists of spans with `trace_id`, `span_id` and `attributes`, as the fixtures of
strands-evals have them.  The conventions read the attributes.
"""

from collections.abc import Iterator, Mapping

from evaltap.recorder.telemetry.flat_spans import (
    Entry,
    decoded,
    entry_of,
    identifier,
    mapping,
    objects,
)
from evaltap.schemas.data import JsonObject

_IDS = ("trace_id", "span_id")
_FRAME = 4
"""A table of spans has at least these columns."""
_INDEX = "context.span_id"
"""What Phoenix's data frames have as their index."""
_PENDING = "pending_span"
"""Logfire's row for a span that has started; the row of the whole span follows."""


def is_logfire(document: object) -> bool:
    """Check whether a document is a row of Logfire's `records`."""
    row = mapping(document)
    return "span_name" in row and "start_timestamp" in row and _has_ids(row)


def rows_of_columns(document: Mapping[str, object]) -> list[object] | None:
    """Return the rows of a table that is written by column; None for other documents.

    Logfire lists columns with their `values`; a data frame's `to_json` writes `{column: {index: value}}`, and
    with `orient="split"` the names beside the rows.
    """
    columns = objects(document.get("columns"))
    values = [one["values"] for one in columns if isinstance(one.get("values"), list)]
    if columns and len(values) == len(columns):
        names = [str(one.get("name")) for one in columns]
        return [dict(zip(names, row, strict=True)) for row in zip(*values, strict=False)]
    split, rows = document.get("columns"), document.get("data")
    if isinstance(split, list) and isinstance(rows, list):
        titles = [*map(str, split)]
        return [dict(zip(titles, row, strict=False)) for row in rows if isinstance(row, list)]
    return _rows_of_frame(document)


def _rows_of_frame(document: Mapping[str, object]) -> list[object] | None:
    if len(document) < _FRAME or not all(isinstance(one, Mapping) for one in document.values()):
        return None
    index = mapping(next(iter(document.values())))
    return [
        {_INDEX: key, **{name: mapping(column).get(key) for name, column in document.items()}}
        for key in index
    ]


def is_flat_span(document: object) -> bool:
    """Check whether a document is a span with its ids beside its attributes."""
    row = mapping(document)
    return isinstance(row.get("attributes"), Mapping) and "name" in row and _has_ids(row)


def log_records(rows: list[Mapping[str, object]]) -> list[JsonObject]:
    """Return the events with messages in their bodies, which CloudWatch keeps as log records."""
    return [
        {
            "traceId": identifier(row["trace_id"], 32),
            "spanId": identifier(row["span_id"], 16),
            "timeUnixNano": event.get("timestamp"),
            "attributes": {**mapping(row.get("attributes")), **mapping(event.get("attributes"))},
            "body": event["body"],
        }
        for row in rows
        for event in objects(row.get("span_events"))
        if "body" in event and isinstance(event.get("timestamp"), int)
    ]


def _is_record(row: Mapping[str, object]) -> bool:
    """Return whether a row is only a log record in the form of a span."""
    return bool(objects(row.get("span_events"))) and {*mapping(row.get("attributes"))} <= {
        "event.name",
        "session.id",
    }


def _has_ids(row: Mapping[str, object]) -> bool:
    return all(isinstance(row.get(name), str) and row[name] for name in _IDS)


def of_rows(rows: list[Mapping[str, object]]) -> Iterator[Entry]:
    """Yield the spans of rows."""
    for row in rows:
        if row.get("kind") == _PENDING or _is_record(row):
            continue
        parent = row.get("parent_span_id") or row.get("parent_id")
        start = row.get("start_timestamp", row.get("start_time"))
        scope = row.get("otel_scope_name") or mapping(row.get("scope")).get("name")
        yield entry_of(
            _resource(row),
            str(scope or ""),
            ids=(
                identifier(row["trace_id"], 32),
                identifier(row["span_id"], 16),
                identifier(parent, 16) if parent else "",
            ),
            name=row.get("span_name") or row.get("name") or "",
            times=(start, row.get("end_timestamp") or row.get("end_time") or start),
            attributes=decoded(row.get("attributes")),
            events=[_event(one) for one in objects(row.get("otel_events", row.get("events")))],
            status=_status(row),
        )


def _resource(row: Mapping[str, object]) -> JsonObject:
    stated = row.get("otel_resource_attributes") or mapping(row.get("resource")).get("attributes")
    known = {"service.name": row.get("service_name"), "service.version": row.get("service_version")}
    return {**mapping(decoded(stated)), **{key: value for key, value in known.items() if value}}


def _event(event: Mapping[str, object]) -> JsonObject:
    return {
        "name": event.get("event_name") or event.get("name"),
        "timestamp": event.get("event_timestamp") or event.get("timestamp"),
        "attributes": event.get("attributes"),
    }


def _status(row: Mapping[str, object]) -> JsonObject:
    stated = mapping(row.get("status"))
    code = str(row.get("otel_status_code") or stated.get("status_code") or stated.get("code") or "")
    message = row.get("otel_status_message") or stated.get("description") or stated.get("message")
    failed = code.upper().endswith("ERROR") or code == "2"
    return {"code": 2 if failed else 0, "message": message or ""}
