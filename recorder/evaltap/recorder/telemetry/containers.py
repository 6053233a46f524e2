"""Other span containers as OTLP/JSON requests: Tempo, Jaeger, SDK spans, exports of other products.

Sources: Tempo's `/api/traces` (`batches`) and `/api/v2/traces` (`trace`), Jaeger's `/api/traces` and the
download of its UI, `to_json` of spans of the OpenTelemetry SDK for Python. The conventions then read the
spans like any others.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta

from evaltap.recorder.telemetry.flat_spans import Entry, mapping
from evaltap.recorder.telemetry.langfuse_export import (
    is_langfuse,
    is_observation,
    of_observations,
    of_trace,
)
from evaltap.recorder.telemetry.langsmith_export import of_runs, runs_of
from evaltap.recorder.telemetry.mlflow_export import is_mlflow
from evaltap.recorder.telemetry.mlflow_export import of_trace as of_mlflow
from evaltap.recorder.telemetry.phoenix_export import is_phoenix, of_spans
from evaltap.schemas.data import JsonObject

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STATUS = {"ERROR": 2, "OK": 1}


def as_request(document: object) -> object:
    """Return the OTLP/JSON request with the same spans; return unknown containers unchanged."""
    runs = runs_of(document)
    if runs is not None:
        return _request(map(_of_flat, of_runs(runs)))
    if isinstance(document, Mapping):
        if is_mlflow(document):
            return _request(map(_of_flat, of_mlflow(document)))
        if is_langfuse(document):
            return _request(map(_of_flat, of_trace(document)))
        if isinstance(document.get("trace"), Mapping):
            return as_request(document["trace"])
        if isinstance(document.get("batches"), list):
            return {"resourceSpans": document["batches"]}
        data = document.get("data")
        if isinstance(data, list) and all(map(_is_jaeger, data)):
            return _request(entry for trace in data for entry in _of_jaeger(trace))
        if isinstance(data, list) and all(map(is_phoenix, data)):
            return _request(map(_of_flat, of_spans(data)))
        if isinstance(data, list) and all(map(is_observation, data)):
            return _request(map(_of_flat, of_observations(data)))
        if is_phoenix(document):
            return _request(map(_of_flat, of_spans([document])))
        if _is_sdk_span(document):
            return _request([_of_sdk(document)])
    if isinstance(document, list) and document and all(map(is_phoenix, document)):
        return _request(map(_of_flat, of_spans(document)))
    if isinstance(document, list) and document and all(map(_is_sdk_span, document)):
        return _request(map(_of_sdk, document))
    if isinstance(document, list) and document and all(map(is_mlflow, document)):
        return _request(_of_flat(entry) for one in document for entry in of_mlflow(one))
    if isinstance(document, list) and document and all(map(is_langfuse, document)):
        return _request(_of_flat(entry) for one in document for entry in of_trace(one))
    if isinstance(document, list) and document and all(map(is_observation, document)):
        return _request(map(_of_flat, of_observations(document)))
    return document


def _request(entries: Iterable[Entry]) -> JsonObject:
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": _attributes(resource)},
                "scopeSpans": [{"scope": {"name": scope}, "spans": [span]}],
            }
            for resource, scope, span in entries
        ]
    }


def _attributes(values: object) -> list[JsonObject]:
    held = values if isinstance(values, Mapping) else {}
    return [{"key": str(key), "value": _value(value)} for key, value in held.items()]


def _value(value: object) -> object:
    if isinstance(value, Mapping):
        return {"kvlistValue": {"values": _attributes(value)}}
    return value


def _is_jaeger(trace: object) -> bool:
    return isinstance(trace, Mapping) and "spans" in trace and "processes" in trace


def _of_jaeger(trace: Mapping[str, object]) -> Iterator[Entry]:
    processes = mapping(trace.get("processes"))
    for span in filter(None, map(mapping, _listed(trace.get("spans")))):
        process = mapping(processes.get(str(span.get("processID"))))
        tags = _tags(span.get("tags"))
        start = _whole(span.get("startTime"))
        scope = tags.pop("otel.scope.name", tags.pop("otel.library.name", ""))
        code = str(tags.pop("otel.status_code", "")).upper()
        failed = code == "ERROR" or tags.get("error") is True
        yield (
            {"service.name": process.get("serviceName"), **_tags(process.get("tags"))},
            str(scope),
            {
                "traceId": _padded(span.get("traceID"), 32),
                "spanId": _padded(span.get("spanID"), 16),
                "parentSpanId": _padded(_jaeger_parent(span), 16),
                "name": span.get("operationName"),
                "startTimeUnixNano": start * 1000,
                "endTimeUnixNano": (start + _whole(span.get("duration"))) * 1000,
                "attributes": _attributes(tags),
                "events": [_jaeger_event(log) for log in map(mapping, _listed(span.get("logs")))],
                "status": {
                    "code": 2 if failed else _STATUS.get(code, 0),
                    "message": tags.get("otel.status_description", ""),
                },
            },
        )


def _jaeger_parent(span: Mapping[str, object]) -> object:
    references = [mapping(one) for one in _listed(span.get("references"))]
    parents = [one.get("spanID") for one in references if one.get("refType") == "CHILD_OF"]
    return parents[0] if parents else span.get("parentSpanID")


def _jaeger_event(log: Mapping[str, object]) -> JsonObject:
    fields = _tags(log.get("fields"))
    name = fields.pop("event", fields.pop("message", ""))
    return {
        "name": name,
        "timeUnixNano": _whole(log.get("timestamp")) * 1000,
        "attributes": _attributes(fields),
    }


def _tags(tags: object) -> JsonObject:
    return {str(one.get("key")): one.get("value") for one in map(mapping, _listed(tags)) if one}


def _is_sdk_span(document: object) -> bool:
    if not isinstance(document, Mapping):
        return False
    context = document.get("context")
    return isinstance(context, Mapping) and "trace_id" in context and "span_id" in context


def _of_sdk(span: Mapping[str, object]) -> Entry:
    context, status = mapping(span.get("context")), mapping(span.get("status"))
    scope = mapping(span.get("instrumentation_scope") or span.get("scope"))
    code = str(status.get("status_code", "")).removeprefix("StatusCode.").upper()
    return (
        dict(mapping(mapping(span.get("resource")).get("attributes"))),
        str(scope.get("name") or ""),
        {
            "traceId": _padded(context.get("trace_id"), 32),
            "spanId": _padded(context.get("span_id"), 16),
            "parentSpanId": _padded(span.get("parent_id"), 16),
            "name": span.get("name"),
            "startTimeUnixNano": _nanoseconds(span.get("start_time")),
            "endTimeUnixNano": _nanoseconds(span.get("end_time")),
            "attributes": _attributes(span.get("attributes")),
            "events": _events(span.get("events")),
            "status": {"code": _STATUS.get(code, 0), "message": status.get("description") or ""},
        },
    )


def _of_flat(entry: Entry) -> Entry:
    """Return a span with its ids and times in OTLP's form."""
    resource, scope, span = entry
    return (
        resource,
        scope,
        {
            "traceId": span["trace_id"],
            "spanId": span["span_id"],
            "parentSpanId": span["parent_id"],
            "name": span["name"],
            "startTimeUnixNano": _nanoseconds(span["start_time"]),
            "endTimeUnixNano": _nanoseconds(span["end_time"]),
            "attributes": _attributes(span["attributes"]),
            "events": _events(span.get("events")),
            "status": span.get("status", {}),
        },
    )


def _events(events: object) -> list[JsonObject]:
    return [
        {
            "name": event.get("name"),
            "timeUnixNano": _nanoseconds(event.get("timestamp")),
            "attributes": _attributes(event.get("attributes")),
        }
        for event in map(mapping, _listed(events))
    ]


def _nanoseconds(moment: object) -> object:
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


def _padded(identifier: object, digits: int) -> object:
    """Return an id padded to OTLP's number of hex digits; writers differ in `0x` and leading zeros."""
    if not isinstance(identifier, str):
        return identifier
    bare = identifier.removeprefix("0x")
    return bare.rjust(digits, "0") if bare else ""


def _listed(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0
