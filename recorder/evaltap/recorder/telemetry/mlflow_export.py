"""Traces exported from MLflow, as spans that the MLflow convention reads.

Sources: `Trace.to_json()` and `to_dict()` of MLflow 2 and 3, rows of the data frame that
`mlflow.search_traces()` returns (`to_json(orient="records")`), which contain such a trace as text, the
REST API's `trace`, with `trace_info` and spans in OTLP's form, and responses of Databricks' model serving.
"""

import base64
import binascii
from collections.abc import Iterator, Mapping
from typing import Final

from evaltap.recorder.telemetry.flat_spans import (
    Entry,
    decoded,
    entry_of,
    identifier,
    mapping,
    objects,
)
from evaltap.schemas.data import JsonObject

PREFIX: Final = "mlflow."
SESSION: Final = "mlflow.trace.session"
USER: Final = "mlflow.trace.user"


def is_mlflow(document: object) -> bool:
    """Check whether a document is a trace, or a row with one."""
    trace = _trace(document)
    spans = mapping(trace.get("data")).get("spans")
    return isinstance(spans, list) and bool(mapping(trace.get("info")))


def of_trace(document: object) -> Iterator[Entry]:
    """Yield the spans of a trace; its root also has the session and the user."""
    trace = _trace(document)
    info, spans = mapping(trace["info"]), mapping(trace["data"])["spans"]
    metadata = mapping(info.get("trace_metadata") or info.get("request_metadata"))
    about = {name: metadata[name] for name in (SESSION, USER) if metadata.get(name)}
    named = str(info.get("trace_id") or info.get("request_id") or "")
    trace_id = identifier(named.removeprefix("tr-"), 32)
    for span in objects(spans):
        context = mapping(span.get("context"))
        parent = span.get("parent_span_id") or span.get("parent_id")
        span_id = _span_id(span.get("span_id") or context.get("span_id"))
        yield entry_of(
            {},
            "mlflow",
            ids=(trace_id, span_id, _span_id(parent) if parent else ""),
            name=span.get("name"),
            times=(
                span.get("start_time_unix_nano") or span.get("start_time"),
                span.get("end_time_unix_nano") or span.get("end_time"),
            ),
            attributes=_attributes(span) | ({} if parent else about),
            events=_events(span.get("events")),
            status=_status(span),
        )


def _status(span: Mapping[str, object]) -> dict[str, object]:
    status = mapping(span.get("status"))
    code = str(status.get("code") or span.get("status_code") or "")
    message = status.get("message") or span.get("status_message")
    return {"code": 2 if code.endswith("ERROR") else 0, "message": message or ""}


def _trace(document: object) -> Mapping[str, object]:
    """Return the trace in a document; empty if it is something else."""
    found = mapping(document)
    found = mapping(found.get("databricks_output")) or found
    found = mapping(decoded(found.get("trace"))) or found
    spans = found.get("spans")
    if "trace_info" in found and isinstance(spans, list):
        return {"info": found["trace_info"], "data": {"spans": spans}}
    return found


def _span_id(given: object) -> str:
    text = str(given).removeprefix("0x")
    try:
        held = base64.b64decode(text, validate=True) if len(text) == 12 else b""
    except binascii.Error:
        held = b""
    return held.hex() if len(held) == 8 else identifier(text, 16)


def _attributes(span: Mapping[str, object]) -> JsonObject:
    """Return the attributes; MLflow writes each as JSON text, even those of other instrumentations."""
    given = span.get("attributes")
    values = {
        str(one.get("key")): next(iter(mapping(one.get("value")).values()), None)
        for one in objects(given)
    }
    return {
        name: value if name.startswith(PREFIX) else decoded(value)
        for name, value in (values or mapping(given)).items()
        if value is not None
    }


def _events(events: object) -> list[JsonObject]:
    return [
        {
            "name": event.get("name"),
            "timestamp": event.get("time_unix_nano") or event.get("timestamp"),
            "attributes": event.get("attributes"),
        }
        for event in objects(events)
    ]
