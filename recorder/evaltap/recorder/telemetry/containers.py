"""Other span containers as OTLP/JSON requests: Tempo, Jaeger, SDK spans, exports of other products.

Sources: Tempo's `/api/traces` (`batches`) and `/api/v2/traces` (`trace`), Jaeger's `/api/traces` and the
download of its UI, `to_json` of spans of the OpenTelemetry SDK for Python; the exports of other products are
in the modules `*_export` and `span_rows`. The conventions then read the spans like any others.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

from evaltap.recorder.telemetry.cloudwatch_export import are_cloudwatch, as_otlp, is_cloudwatch
from evaltap.recorder.telemetry.datadog_export import is_datadog, of_datadog
from evaltap.recorder.telemetry.flat_spans import Entry, entry_of, mapping, objects, pairs
from evaltap.recorder.telemetry.langfuse_export import (
    is_langfuse,
    is_observation,
    is_trace_row,
    of_observations,
    of_trace,
    of_trace_rows,
)
from evaltap.recorder.telemetry.langsmith_export import of_runs, runs_of
from evaltap.recorder.telemetry.mlflow_export import is_mlflow
from evaltap.recorder.telemetry.mlflow_export import of_trace as of_mlflow
from evaltap.recorder.telemetry.opik_export import (
    is_opik_span,
    is_opik_trace,
    is_opik_trace_row,
    of_opik_spans,
    of_opik_trace,
    of_opik_trace_rows,
)
from evaltap.recorder.telemetry.phoenix_export import is_phoenix, of_spans
from evaltap.recorder.telemetry.span_rows import (
    is_flat_span,
    is_logfire,
    log_records,
    of_rows,
    rows_of_columns,
)
from evaltap.schemas.data import JsonObject

_STATUS = {"ERROR": 2, "OK": 1}


def as_request(document: object) -> object:
    """Return the OTLP/JSON request with the same spans; return unknown containers unchanged."""
    found = container_of(document)
    return document if found is None else found[1]


def container_of(document: object) -> tuple[str, object] | None:
    """Return a container's name and the OTLP/JSON request with its spans; None for other documents."""
    if (runs := runs_of(document)) is not None:
        return "LangSmith runs", _request(of_runs(runs))
    if isinstance(document, Mapping):
        if not _SIGNALS.isdisjoint(document):
            return "OTLP", document
        if isinstance(document.get("trace"), Mapping) and "batches" in document["trace"]:
            return container_of(document["trace"])
        if isinstance(document.get("batches"), list):
            return "Tempo trace", {"resourceSpans": document["batches"]}
        # A table by column comes first: its columns may have all the names that a span has.
        if (rows := rows_of_columns(document)) and (found := _listed_spans(rows)) is not None:
            return found
        if (found := _listed_spans([document])) is not None:
            return found
        for key in _WRAPPERS:
            held = document.get(key)
            if isinstance(held, list) and held and (found := _listed_spans(held)) is not None:
                return found
        if document.get("data") == []:
            return "Jaeger traces", _request(())
        if is_cloudwatch(document):
            return "CloudWatch records", as_otlp(document)
        if isinstance(document.get("trace"), Mapping):
            return container_of(document["trace"])
    if isinstance(document, list) and document:
        if are_cloudwatch(document):
            return "CloudWatch records", as_otlp({"events": document})
        return _listed_spans(document)
    return None


def spans_together(documents: Iterable[tuple[str, object]]) -> Iterator[tuple[str, object]]:
    """Yield documents, but spans of some products as one list: a line alone does not show its trace."""
    held: dict[int, list[object]] = {}
    for place, document in documents:
        number = next((n for n, belongs in enumerate(_PARTIAL) if belongs(document)), None)
        if number is None:
            yield place, document
        else:
            held.setdefault(number, []).append(document)
    yield from (("", found) for found in held.values())


_PARTIAL: Sequence[Callable[[object], bool]] = (is_observation, is_opik_span, is_datadog)
_SIGNALS = frozenset({"resourceSpans", "resourceLogs", "resourceMetrics"}) | frozenset(
    {"resource_spans", "resource_logs", "resource_metrics"}
)
_WRAPPERS = ("data", "content", "rows", "spans", "traces")
"""Keys under which APIs wrap a page of traces or spans: Jaeger, Phoenix, Opik, Logfire, MLflow."""


def _listed_spans(items: list[object]) -> tuple[str, object] | None:
    """Return the name of a list of traces or spans, and their request; None for other lists."""
    for name, belongs, entries in _LISTS:
        if all(map(belongs, items)):
            request = _request(entries(items))
            if belongs is is_flat_span and (records := log_records(list(map(mapping, items)))):
                request |= {"resourceLogs": as_otlp({"events": records})["resourceLogs"]}
            return name, request
    return None


def _request(entries: Iterable[Entry]) -> JsonObject:
    return {
        "resourceSpans": [
            {
                "resource": {"attributes": pairs(resource)},
                "scopeSpans": [{"scope": {"name": scope}, "spans": [span]}],
            }
            for resource, scope, span in entries
        ]
    }


def _is_jaeger(trace: object) -> bool:
    return isinstance(trace, Mapping) and "spans" in trace and "processes" in trace


def _of_jaeger(trace: Mapping[str, object]) -> Iterator[Entry]:
    processes = mapping(trace.get("processes"))
    for span in filter(None, objects(trace.get("spans"))):
        process = mapping(processes.get(str(span.get("processID"))))
        tags = _tags(span.get("tags"))
        start = _whole(span.get("startTime"))
        scope = tags.pop("otel.scope.name", tags.pop("otel.library.name", ""))
        code = str(tags.pop("otel.status_code", "")).upper()
        failed = code == "ERROR" or tags.get("error") is True
        yield entry_of(
            {"service.name": process.get("serviceName"), **_tags(process.get("tags"))},
            str(scope),
            ids=(
                _padded(span.get("traceID"), 32),
                _padded(span.get("spanID"), 16),
                _padded(_jaeger_parent(span), 16),
            ),
            name=span.get("operationName"),
            times=(start * 1000, (start + _whole(span.get("duration"))) * 1000),
            attributes=tags,
            events=[_jaeger_event(log) for log in objects(span.get("logs"))],
            status={
                "code": 2 if failed else _STATUS.get(code, 0),
                "message": tags.get("otel.status_description", ""),
            },
        )


def _jaeger_parent(span: Mapping[str, object]) -> object:
    references = objects(span.get("references"))
    parents = [one.get("spanID") for one in references if one.get("refType") == "CHILD_OF"]
    return parents[0] if parents else span.get("parentSpanID")


def _jaeger_event(log: Mapping[str, object]) -> JsonObject:
    fields = _tags(log.get("fields"))
    name = fields.pop("event", fields.pop("message", ""))
    return {"name": name, "timestamp": _whole(log.get("timestamp")) * 1000, "attributes": fields}


def _tags(tags: object) -> JsonObject:
    return {str(one.get("key")): one.get("value") for one in objects(tags) if one}


def _is_sdk_span(document: object) -> bool:
    if not isinstance(document, Mapping):
        return False
    context = document.get("context")
    return isinstance(context, Mapping) and "trace_id" in context and "span_id" in context


def _of_sdk(span: Mapping[str, object]) -> Entry:
    context, status = mapping(span.get("context")), mapping(span.get("status"))
    scope = mapping(span.get("instrumentation_scope") or span.get("scope"))
    code = str(status.get("status_code", "")).removeprefix("StatusCode.").upper()
    return entry_of(
        dict(mapping(mapping(span.get("resource")).get("attributes"))),
        str(scope.get("name") or ""),
        ids=(
            _padded(context.get("trace_id"), 32),
            _padded(context.get("span_id"), 16),
            _padded(span.get("parent_id"), 16),
        ),
        name=span.get("name"),
        times=(span.get("start_time"), span.get("end_time")),
        attributes=span.get("attributes"),
        events=span.get("events"),
        status={"code": _STATUS.get(code, 0), "message": status.get("description") or ""},
    )


def _padded(identifier: object, digits: int) -> object:
    """Return an id padded to OTLP's number of hex digits; writers differ in `0x` and leading zeros."""
    if not isinstance(identifier, str):
        return identifier
    bare = identifier.removeprefix("0x")
    return bare.rjust(digits, "0") if bare else ""


def _whole(value: object) -> int:
    return value if isinstance(value, int) else 0


_Reader = Callable[[list[Any]], Iterable[Entry]]  # Any: what the format's check accepts


def _each(read: Callable[[Any], Iterable[Entry]]) -> _Reader:  # Any: as above
    """Return a reader of a list of traces."""
    return lambda items: chain.from_iterable(map(read, items))


_LISTS: tuple[tuple[str, Callable[[object], bool], _Reader], ...] = (
    ("Jaeger traces", _is_jaeger, _each(_of_jaeger)),
    ("MLflow traces", is_mlflow, _each(of_mlflow)),
    ("Opik traces", is_opik_trace, _each(of_opik_trace)),
    ("Langfuse traces", is_langfuse, _each(of_trace)),
    ("Langfuse observations", is_observation, of_observations),
    ("Langfuse list of traces", is_trace_row, of_trace_rows),
    ("Phoenix spans", is_phoenix, of_spans),
    ("OpenTelemetry SDK spans", _is_sdk_span, lambda items: map(_of_sdk, items)),
    ("Opik spans", is_opik_span, of_opik_spans),
    ("Opik list of traces", is_opik_trace_row, of_opik_trace_rows),
    ("Datadog spans", is_datadog, of_datadog),
    ("Logfire rows", is_logfire, of_rows),
    ("flat spans", is_flat_span, of_rows),
)
"""Lists of traces or spans: their name, whether an item belongs to one, and the spans of the list."""
