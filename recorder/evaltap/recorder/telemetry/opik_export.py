"""Opik's own JSON of traces and spans, as observations that the Langfuse convention reads.

Sources: `GET /v1/private/spans` (`content`), `Opik.search_spans`, and the files `{"trace", "spans"}` that
`opik export` writes.
"""

from collections.abc import Iterator, Mapping

from evaltap.recorder.telemetry.flat_spans import Entry, mapping, objects
from evaltap.recorder.telemetry.langfuse_export import of_observations, of_trace
from evaltap.schemas.data import JsonObject

_SCOPE = "opik"
_TYPES = {"general": "SPAN", "llm": "GENERATION", "tool": "TOOL", "guardrail": "GUARDRAIL"}


def is_opik_span(document: object) -> bool:
    """Check whether a document is one span."""
    span = mapping(document)
    return (
        {"id", "trace_id", "start_time"} <= span.keys()
        and isinstance(span["id"], str)
        and isinstance(span.get("parent_span_id"), str | None)
        and str(span.get("type")) in _TYPES
    )


def is_opik_trace(document: object) -> bool:
    """Check whether a document is a trace with its spans."""
    held = mapping(document).get("spans")
    return (
        isinstance(held, list)
        and bool(mapping(mapping(document).get("trace")))
        and all(map(is_opik_span, held))
    )


def is_opik_trace_row(document: object) -> bool:
    """Check whether a document is a trace without its spans: a row of a list of traces."""
    row = mapping(document)
    return (
        {"id", "start_time", "input", "output", "feedback_scores"} <= row.keys()
        and not {"trace_id", "run_type", "type"} & row.keys()
        and isinstance(row["id"], str)
    )


def of_opik_trace_rows(rows: list[Mapping[str, object]]) -> Iterator[Entry]:
    """Yield a run for each trace."""
    for row in rows:
        yield from of_opik_trace({"trace": row, "spans": []})


def of_opik_spans(spans: list[Mapping[str, object]]) -> Iterator[Entry]:
    """Yield the spans of spans without their traces."""
    yield from of_observations([_observation(span) for span in spans], scope=_SCOPE)


def of_opik_trace(document: Mapping[str, object]) -> Iterator[Entry]:
    """Yield the spans of a trace."""
    trace = mapping(document["trace"])
    about = {
        "id": trace.get("id"),
        "name": trace.get("name"),
        "input": _text(trace.get("input"), "input"),
        "output": _text(trace.get("output"), "output"),
        "timestamp": trace.get("start_time"),
        "endTime": trace.get("end_time"),
        "sessionId": trace.get("thread_id"),
    }
    observations = [_observation(one) for one in objects(document["spans"])]
    yield from of_trace({"trace": about, "observations": observations}, scope=_SCOPE)


def _observation(span: Mapping[str, object]) -> JsonObject:
    error, kind = mapping(span.get("error_info")), str(span["type"])
    entered, left = span.get("input"), span.get("output")
    return {
        "id": span["id"],
        "traceId": span["trace_id"],
        "type": _TYPES[kind],
        "parentObservationId": span.get("parent_span_id"),
        "name": span.get("name"),
        "startTime": span.get("start_time"),
        "endTime": span.get("end_time"),
        "input": _text(entered, "input") if kind == "general" else entered,
        "output": _text(left, "output") if kind in ("general", "tool") else left,
        "model": span.get("model"),
        "usageDetails": span.get("usage"),
        "totalCost": span.get("total_estimated_cost"),
        "level": "ERROR" if error else None,
        "statusMessage": error.get("message") or error.get("exception_type"),
        "sessionId": span.get("thread_id"),
    }


def _text(value: object, key: str) -> object:
    """Return what a decorated function took or returned, which Opik wraps as `{"output": …}`."""
    return value[key] if isinstance(value, Mapping) and set(value) == {key} else value
