"""Langfuse's own JSON of traces, as spans that the Langfuse convention reads.

Sources: `GET /api/public/traces/{id}` (a trace with its `observations`), the pair
`{"trace", "observations"}`, and lists of observations, as the UI exports them, or in the `data` of
`GET /api/public/v2/observations`, where each has the session and the user of its trace.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from evaltap.recorder.telemetry.flat_spans import Entry, identifier, mapping, texts
from evaltap.schemas.data import JsonObject

SCOPE: Final = "langfuse"
_RUNS: Final = ("SPAN", "AGENT", "CHAIN")
"""Observation types that can be the run itself; a trace with another root gets an added run."""


def is_langfuse(document: object) -> bool:
    """Check whether a document is a trace with its observations."""
    if not isinstance(document, Mapping):
        return False
    observations = document.get("observations")
    return (
        isinstance(observations, list)
        and all(map(is_observation, observations))
        and ("trace" in document or "id" in document)
    )


def is_observation(document: object) -> bool:
    """Check whether a document is one observation."""
    return (
        isinstance(document, Mapping)
        and {"id", "traceId", "type"} <= document.keys()
        and isinstance(document["id"], str)
        and isinstance(document.get("parentObservationId"), str | None)
    )


def of_observations(
    observations: Sequence[Mapping[str, object]], *, scope: str = SCOPE
) -> Iterator[Entry]:
    """Yield the spans of observations without their traces; `scope` names the product."""
    traces: dict[str, list[object]] = {}
    for one in observations:
        traces.setdefault(str(one["traceId"]), []).append(one)
    for trace_id, members in traces.items():
        yield from of_trace({"id": trace_id, "observations": members}, scope=scope)


def of_trace(document: Mapping[str, object], *, scope: str = SCOPE) -> Iterator[Entry]:
    """Yield the spans of a trace; `scope` names the product."""
    stated = document.get("trace")
    trace = stated if isinstance(stated, Mapping) else document
    held = document["observations"]
    found = [one for one in held if isinstance(one, Mapping)] if isinstance(held, list) else []
    ids = {one["id"] for one in found}
    trace_id = identifier(trace.get("id") or next((one["traceId"] for one in found), ""), 32)
    roots = [one for one in found if one.get("parentObservationId") not in ids]
    whole = [one for one in roots if str(one.get("type")).upper() in _RUNS]
    alone = whole[0] if len(whole) == len(roots) == 1 else None
    about = texts(
        {
            "langfuse.trace.input": trace.get("input"),
            "langfuse.trace.output": trace.get("output"),
            "session.id": _first("sessionId", trace, *found),
            "user.id": _first("userId", trace, *found),
        }
    )
    if alone is None:
        times = sorted(str(one["startTime"]) for one in found if one.get("startTime"))
        ends = sorted(str(one["endTime"]) for one in found if one.get("endTime"))
        span = {
            "name": trace.get("name") or _first("traceName", *found) or "",
            "startTime": trace.get("timestamp") or next(iter(times), None),
            "endTime": next(reversed(ends), None),
        }
        attributes = {"langfuse.observation.type": "span", **about}
        yield _entry(span, trace_id, identifier(f"trace {trace_id}", 16), "", attributes, scope)
    for one in found:
        parent = one.get("parentObservationId")
        above = identifier(parent, 16) if parent in ids else ""
        if not above and alone is None:
            above = identifier(f"trace {trace_id}", 16)
        attributes = _attributes(one) | (about if one is alone else {})
        yield _entry(one, trace_id, identifier(one["id"], 16), above, attributes, scope)


def observations_together(
    documents: Iterable[tuple[str, object]],
) -> Iterator[tuple[str, object]]:
    """Yield documents, but observations as one list: a line alone does not show its trace."""
    held = []
    for place, document in documents:
        if is_observation(document):
            held.append(document)
        else:
            yield place, document
    if held:
        yield "", held


def _first(key: str, *items: Mapping[str, object]) -> object:
    """Return the first value that an item has for a key; None if none has one."""
    return next((item[key] for item in items if item.get(key)), None)


def _entry(
    item: Mapping[str, object],
    trace_id: str,
    span_id: str,
    parent: str,
    attributes: JsonObject,
    scope: str,
) -> Entry:
    start = item.get("startTime")
    return (
        {},
        scope,
        {
            "trace_id": trace_id,
            "span_id": span_id,
            "parent_id": parent,
            "name": item.get("name") or "",
            "start_time": start,
            "end_time": item.get("endTime") or start,
            "attributes": attributes,
        },
    )


def _attributes(item: Mapping[str, object]) -> JsonObject:
    """Return the attributes that the SDK wrote; those of other instrumentations are in the metadata."""
    written = _mapping(_mapping(item.get("metadata")).get("attributes"))
    usage = _mapping(item.get("usageDetails") or item.get("usage"))
    cost = item.get("calculatedTotalCost") or item.get("totalCost")
    return {
        **written,
        **texts(
            {
                "langfuse.observation.type": str(item.get("type")).lower(),
                "langfuse.observation.input": item.get("input"),
                "langfuse.observation.output": item.get("output"),
                "langfuse.observation.level": item.get("level"),
                "langfuse.observation.status_message": item.get("statusMessage"),
                "langfuse.observation.model.name": item.get("model"),
                "langfuse.observation.usage_details": usage,
                "langfuse.observation.cost_details": item.get("costDetails")
                or ({"total": cost} if cost else None),
            }
        ),
    }


def _mapping(value: object) -> Mapping[str, object]:
    """Return an object, which some exports write as JSON text; empty for anything else."""
    if isinstance(value, str):
        try:
            value = json.loads(value)
        except (ValueError, RecursionError):
            return {}
    return mapping(value)
