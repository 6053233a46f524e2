"""LangSmith's own JSON of runs, as spans that the LangSmith convention reads.

Sources: the Run schema of langsmith 0.15 (`Client.list_runs`, `POST /api/v1/runs/query`), bulk exports,
and runs with nested children (`child_runs`).
"""

import json
from collections.abc import Iterable, Iterator, Mapping

from evaltap.recorder.telemetry.flat_spans import (
    Entry,
    entry_of,
    from_milliseconds,
    identifier,
    mapping,
    texts,
)
from evaltap.schemas.data import JsonObject


def _is_run(document: JsonObject) -> bool:
    """Check whether an object is one LangSmith run."""
    return {"id", "run_type", "inputs"} <= document.keys() and bool(
        document.keys() & {"trace_id", "dotted_order", "child_runs"}
    )


def runs_of(document: object) -> list[JsonObject] | None:
    """Return the runs of a document with all their children, or None if it contains something else."""
    if isinstance(document, Mapping) and isinstance(document.get("runs"), list):
        document = document["runs"]
    elif isinstance(document, Mapping) and isinstance(document.get("post"), list):
        document = _merged(document["post"], document.get("patch"))
    found = document if isinstance(document, list) else [document]
    runs = [one for one in found if isinstance(one, dict) and _is_run(one)]
    return [*_flattened(runs)] if runs and len(runs) == len(found) else None


def _merged(posted: list[object], patched: object) -> list[object]:
    """Return the runs of a batch (`POST /runs/batch`): as they began, and what was added when they ended."""
    runs: dict[object, JsonObject] = {}
    for run in (*posted, *(patched if isinstance(patched, list) else ())):
        if isinstance(run, dict):
            known = {key: value for key, value in run.items() if value is not None}
            # JavaScript sends the ids of patches in their URLs; the order ends with the id.
            key = str(run.get("id") or str(run.get("dotted_order")).rpartition("Z")[2])
            runs[key] = runs.get(key, {}) | known
    return [*runs.values()]


def _flattened(runs: Iterable[object], above: JsonObject | None = None) -> Iterator[JsonObject]:
    for run in runs:
        if not isinstance(run, dict) or None in (run.get("id"), run.get("run_type")):
            continue
        known = (
            {} if above is None else {"parent_run_id": above["id"], "trace_id": _trace_of(above)}
        )
        whole = known | {key: value for key, value in run.items() if value is not None}
        yield whole
        children = run.get("child_runs")
        yield from _flattened(children if isinstance(children, list) else (), whole)


def of_runs(runs: Iterable[JsonObject]) -> Iterator[Entry]:
    """Yield the spans of runs."""
    for run in runs:
        start = from_milliseconds(run.get("start_time"))  # as JavaScript's SDK sends it
        parent = run.get("parent_run_id")
        error = run.get("error")
        yield entry_of(
            {},
            "langsmith",
            ids=(
                identifier(_trace_of(run), 32),
                identifier(run["id"], 16),
                identifier(parent, 16) if parent else "",
            ),
            name=run.get("name") or "",
            times=(start, from_milliseconds(run.get("end_time")) or start),
            attributes=_attributes(run),
            status={"code": 2, "message": str(error)} if error else {},
        )


def _trace_of(run: JsonObject) -> object:
    """Return the id of a run's trace, which is the id of its root."""
    order = run.get("dotted_order")
    first = order.partition(".")[0] if isinstance(order, str) else ""
    return run.get("trace_id") or first.rpartition("Z")[2] or run["id"]


def _attributes(run: JsonObject) -> JsonObject:
    """Return the attributes that LangSmith's OpenTelemetry exporter writes for a run."""
    extra = mapping(run.get("extra"))
    metadata, invoked = mapping(extra.get("metadata")), mapping(extra.get("invocation_params"))
    model = metadata.get("ls_model_name") or invoked.get("model") or invoked.get("model_name")
    known = {f"langsmith.metadata.{name}": value for name, value in metadata.items()}
    return texts(
        {
            **known,
            "langsmith.span.kind": run["run_type"],
            "langsmith.metadata.usage_metadata": metadata.get("usage_metadata") or _usage(run),
            "gen_ai.request.model": model if run["run_type"] == "llm" else None,
            "gen_ai.prompt": json.dumps(run.get("inputs"), ensure_ascii=False),
            "gen_ai.completion": json.dumps(run.get("outputs") or {}, ensure_ascii=False),
        }
    )


def _usage(run: JsonObject) -> JsonObject | None:
    """Return the tokens of a model's run, from its message or from LangSmith's own columns."""
    if run["run_type"] != "llm":
        return None
    outputs = mapping(run.get("outputs"))
    generations = outputs.get("generations")
    while isinstance(generations, list) and generations:
        generations = generations[0]
    message = mapping(mapping(generations).get("message"))
    stated = outputs.get("usage_metadata") or mapping(message.get("kwargs", message)).get(
        "usage_metadata"
    )
    if isinstance(stated, Mapping):
        return dict(stated)
    used = {"input_tokens": run.get("prompt_tokens"), "output_tokens": run.get("completion_tokens")}
    return used if any(used.values()) else None
