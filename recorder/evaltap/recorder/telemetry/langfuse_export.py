"""Langfuse's own JSON of traces, as spans that the Langfuse convention reads.

Sources: `GET /api/public/traces/{id}` (a trace with its `observations`), the pair
`{"trace", "observations"}`, and lists of observations, as the UI exports them, or in the `data` of
`GET /api/public/v2/observations`, where each has the session and the user of its trace.  The export to blob
storage has the same fields in snake_case, traces and observations in files of their own.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from evaltap.recorder.telemetry.flat_spans import (
    Entry,
    decoded,
    entry_of,
    identifier,
    mapping,
    objects,
    texts,
)
from evaltap.recorder.telemetry.spans import Span
from evaltap.schemas.data import JsonObject

SCOPE: Final = "langfuse"
_ROW: Final = "langfuse-traces"
"""Scope of the rows of traces."""
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
    if not isinstance(document, Mapping):
        return False
    camel = {"id", "traceId", "type"} <= document.keys()
    return (
        (camel or {"id", "trace_id", "type", "parent_observation_id"} <= document.keys())
        and isinstance(document["id"], str)
        and isinstance(document.get("parentObservationId"), str | None)
    )


def is_trace_row(document: object) -> bool:
    """Check whether a document is a trace without its observations: a row of a list of traces."""
    row = mapping(document)
    return (
        {"id", "timestamp", "input", "output", "release"} <= row.keys()
        and not {"sessionId", "session_id"}.isdisjoint(row)
        and isinstance(row["id"], str)
    )


def of_trace_rows(rows: Sequence[Mapping[str, object]]) -> Iterator[Entry]:
    """Yield a run for each trace, of its duration in seconds if the row has one."""
    for row in rows:
        for resource, scope, span in of_trace({**_camel(row), "observations": []}, scope=_ROW):
            began, lasted = span["startTimeUnixNano"], _number(row.get("latency"))
            if isinstance(began, int) and lasted is not None and 0 <= lasted < 1e9:
                span["endTimeUnixNano"] = began + round(lasted * 1e6) * 1000
            yield resource, scope, span


def joined(spans: list[Span]) -> list[Span]:
    """Return the spans of a trace without the row of the trace, whose fields its roots take over."""
    rows = [span for span in spans if span.scope == _ROW]
    others = [span for span in spans if span.scope != _ROW]
    if not rows or not others:
        return spans
    ids = {span.span_id for span in others}
    for span in others:
        if span.parent_id not in ids:
            span.attributes = {**rows[0].attributes, **span.attributes}
    return others


def of_observations(
    observations: Sequence[Mapping[str, object]], *, scope: str = SCOPE
) -> Iterator[Entry]:
    """Yield the spans of observations without their traces; `scope` names the product."""
    traces: dict[str, list[object]] = {}
    for one in map(_camel, observations):
        traces.setdefault(str(one["traceId"]), []).append(one)
    for trace_id, members in traces.items():
        yield from of_trace({"id": trace_id, "observations": members}, scope=scope)


def of_trace(document: Mapping[str, object], *, scope: str = SCOPE) -> Iterator[Entry]:
    """Yield the spans of a trace; `scope` names the product."""
    stated = document.get("trace")
    trace = stated if isinstance(stated, Mapping) else document
    found = [*map(_camel, objects(document["observations"]))]
    ids = {one["id"] for one in found}
    trace_id = identifier(trace.get("id") or next((one["traceId"] for one in found), ""), 32)
    alone = _sole_run([one for one in found if one.get("parentObservationId") not in ids])
    about = texts(
        {
            "langfuse.trace.input": trace.get("input"),
            "langfuse.trace.output": trace.get("output"),
            "session.id": _first("sessionId", trace, *found),
            "user.id": _first("userId", trace, *found),
        }
    )
    if alone is None:
        span = _whole(trace, found)
        attributes = {"langfuse.observation.type": "span", **about}
        yield _entry(span, trace_id, identifier(f"trace {trace_id}", 16), "", attributes, scope)
    top = "" if alone is not None else identifier(f"trace {trace_id}", 16)
    for one in found:
        parent = one.get("parentObservationId")
        above = identifier(parent, 16) if parent in ids else top
        attributes = _attributes(one) | (about if one is alone else {})
        yield _entry(one, trace_id, identifier(one["id"], 16), above, attributes, scope)


def _sole_run(roots: Sequence[Mapping[str, object]]) -> Mapping[str, object] | None:
    """Return the only root if it is the run."""
    if len(roots) != 1 or str(roots[0].get("type")).upper() not in _RUNS:
        return None
    return roots[0]


def _whole(
    trace: Mapping[str, object], found: Sequence[Mapping[str, object]]
) -> Mapping[str, object]:
    """Return a trace as an observation of its own."""
    return {
        "name": trace.get("name") or _first("traceName", *found) or "",
        "startTime": trace.get("timestamp") or min(_times(found, "startTime"), default=None),
        "endTime": max(_times(found, "endTime"), default=None) or trace.get("endTime"),
    }


def _times(rows: Iterable[Mapping[str, object]], key: str) -> Iterator[str]:
    return (str(one[key]) for one in rows if one.get(key))


def _camel(row: Mapping[str, object]) -> Mapping[str, object]:
    """Return a row with the names of the API; those of the database are in snake_case."""
    if "_" not in "".join(row):
        return row
    named = (key.split("_") for key in row)
    return {
        head + "".join(map(str.title, tail)): value
        for (head, *tail), value in zip(named, row.values(), strict=True)
    }


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
    return entry_of(
        {},
        scope,
        ids=(trace_id, span_id, parent),
        name=item.get("name") or "",
        times=(start, item.get("endTime") or start),
        attributes=attributes,
    )


def _attributes(item: Mapping[str, object]) -> JsonObject:
    """Return the attributes that the SDK wrote; those of other instrumentations are in the metadata."""
    written = _mapping(_mapping(item.get("metadata")).get("attributes"))
    columns = {side: _number(item.get(f"{side}Usage")) for side in ("input", "output")}
    usage = _mapping(item.get("usageDetails") or item.get("usage")) or {
        side: int(count) for side, count in columns.items() if count is not None and count < 1e15
    }
    cost = _number(item.get("calculatedTotalCost") or item.get("totalCost"))
    return {
        **written,
        **texts(
            {
                "langfuse.observation.type": str(item.get("type")).lower(),
                "langfuse.observation.input": item.get("input"),
                "langfuse.observation.output": item.get("output"),
                "langfuse.observation.level": item.get("level"),
                "langfuse.observation.status_message": item.get("statusMessage"),
                "langfuse.observation.model.name": item.get("model")
                or item.get("providedModelName"),
                "langfuse.observation.usage_details": usage,
                "langfuse.observation.cost_details": _mapping(item.get("costDetails"))
                or ({"total": cost} if cost else None),
            }
        ),
    }


def _number(value: object) -> float | None:
    """Return an amount, which tables write as text."""
    try:
        return float(value) if isinstance(value, str | int | float) and value != "" else None
    except (ValueError, OverflowError):
        return None


def _mapping(value: object) -> Mapping[str, object]:
    return mapping(decoded(value))  # some exports write objects as JSON text
