"""Spans of Datadog's LLM Observability, as observations that the Langfuse convention reads.

Sources: its Export API (`GET /api/v2/llm-obs/v1/spans/events`), whose spans are `attributes` of `data`, and
the payload that its SDKs and the HTTP API send (`spans` with `meta`).
"""

from collections.abc import Iterator, Mapping

from evaltap.recorder.telemetry.flat_spans import Entry, mapping, objects
from evaltap.recorder.telemetry.langfuse_export import of_observations
from evaltap.schemas.data import JsonObject

_TYPES = {
    "agent": "AGENT",
    "embedding": "EMBEDDING",
    "llm": "GENERATION",
    "retrieval": "RETRIEVER",
    "task": "SPAN",
    "tool": "TOOL",
    "workflow": "CHAIN",
}
_LATEST_MILLISECONDS = 1e15
_SESSION = "session_id:"
_NO_PARENT = ("", "undefined", "0", "None")


def is_datadog(document: object) -> bool:
    """Check whether a document is one span, or a payload of them."""
    return any(_kind(span) in _TYPES for span in _spans(mapping(document)))


def of_datadog(documents: list[Mapping[str, object]]) -> Iterator[Entry]:
    """Yield the spans of documents."""
    spans = [span for document in documents for span in _spans(document)]
    found = [_observation(span) for span in spans if _kind(span) in _TYPES]
    yield from of_observations(found, scope="datadog")


def _spans(document: Mapping[str, object]) -> list[Mapping[str, object]]:
    """Return the spans of a payload, with what it says of all of them; a span is its own list."""
    document = mapping(document.get("data")) or document
    held = mapping(document.get("attributes")) or document
    found = objects(held["spans"]) if isinstance(held.get("spans"), list) else [held]
    about = {"session_id": held.get("session_id")}
    return [{**about, **one} for one in found if {"trace_id", "span_id"} <= one.keys()]


def _kind(span: Mapping[str, object]) -> str:
    meta = mapping(span.get("meta"))
    return str(span.get("span_kind") or meta.get("kind") or meta.get("span.kind"))


def _observation(span: Mapping[str, object]) -> JsonObject:
    meta, parent = mapping(span.get("meta")), span.get("parent_id")
    used = mapping(span.get("metrics"))
    cost = used.get("estimated_total_cost")
    error = mapping(meta.get("error"))
    start, lasted = _nanoseconds(span), span.get("duration")
    spent = int(lasted) if isinstance(lasted, int | float) and 0 <= lasted < 1e18 else 0
    return {
        "id": str(span["span_id"]),
        "traceId": span["trace_id"],
        "type": _TYPES[_kind(span)],
        "parentObservationId": None if str(parent) in _NO_PARENT else str(parent),
        "name": span.get("name"),
        "startTime": start,
        "endTime": start + spent,
        "input": _content(span.get("input") or meta.get("input")),
        "output": _content(span.get("output") or meta.get("output")),
        "model": span.get("model_name") or meta.get("model_name"),
        "usageDetails": {
            name: int(count)
            for name in ("input", "output")
            if isinstance(count := used.get(f"{name}_tokens"), int | float) and 0 <= count < 1e15
        },
        # The estimate is in billionths of a dollar.
        "totalCost": cost / 1e9 if isinstance(cost, int | float) else None,
        "level": "ERROR" if span.get("status") == "error" else None,
        "statusMessage": error.get("message") or meta.get("error.message"),
        "sessionId": _session(span),
    }


def _content(value: object) -> object:
    """Return the messages or the text of an input or an output."""
    held = mapping(value)
    return held.get("messages") or held.get("documents") or held.get("value") or None


def _session(span: Mapping[str, object]) -> object:
    """Return the session, which the Export API has as a tag."""
    tags = span.get("tags")
    found = [str(tag) for tag in tags] if isinstance(tags, list) else []
    tagged = (tag.removeprefix(_SESSION) for tag in found if tag.startswith(_SESSION))
    return span.get("session_id") or next(tagged, None)


def _nanoseconds(span: Mapping[str, object]) -> int:
    """Return the start; the Export API gives milliseconds under the same name."""
    given = span.get("start_ns")
    if not isinstance(given, int | float) or not 0 < given < 1e19:
        return 0
    return int(given) * (1_000_000 if given < _LATEST_MILLISECONDS else 1)
