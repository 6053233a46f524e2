"""Data sets and reports of Pydantic Evals as rows.

Source: `Dataset.to_file` and `EvaluationReportAdapter.dump_json` of pydantic-evals 2.62.
"""

from collections.abc import Mapping
from typing import Final

from evaltap.evaluator.cases.datasets.conversations import is_chat
from evaltap.evaluator.cases.datasets.inspect_logs import RUN, TELEMETRY
from evaltap.schemas.data import Json, json_bytes

_DATASET: Final = {"$schema", "name", "cases", "evaluators", "report_evaluators"}
_REPORT: Final = ("cases", "failures")
_USAGE: Final = {"input_tokens": "inputTokens", "output_tokens": "outputTokens", "cost": "costUsd"}


def is_dataset(data: Mapping[str, Json]) -> bool:
    """Return whether an object is a data set, or holds as little as one."""
    return data.keys() <= _DATASET


def dataset_rows(data: Mapping[str, Json]) -> Json:
    """Return the rows of a data set."""
    cases = data.get("cases")
    return [*map(_case, cases)] if isinstance(cases, list) else cases


def report_rows(data: Mapping[str, Json]) -> list[Json] | None:
    """Return the rows of a report, with the runs that failed; None for other objects."""
    if not all(isinstance(data.get(key), list) for key in _REPORT):
        return None
    return [_result(row) if isinstance(row, dict) else row for key in _REPORT for row in data[key]]


def _case(case: Json) -> Json:
    """Return a case whose expected output, if it is a list or an object, is a JSON text.

    It is one value there, not texts to choose from.
    """
    wanted = case.get("expected_output") if isinstance(case, dict) else None
    return {**case, "expected_output": _text(wanted)} if wanted is not None else case


def _result(row: Mapping[str, Json]) -> dict[str, Json]:
    """Return a result as a flat row; `--map input=inputs.KEY` chooses one of several inputs."""
    name, case = str(row.get("name")), row.get("source_case_name")
    # A repeated case `a` has the results `a [1/2]` and `a [2/2]`.
    repeat = name.removeprefix(f"{case} [").partition("/")[0] if case else None
    kept = {key: value for key, value in row.items() if value not in (None, [], {})}
    if not isinstance(row.get("inputs"), dict):
        kept.pop("inputs", None)
    return {
        **kept,
        RUN: repeat and f"repeat-{repeat}",
        "name": case or name,
        "input": _text(row.get("inputs")),
        "output": _text(row.get("output")),
        "expected_output": _text(row.get("expected_output")),
        TELEMETRY: _telemetry(row),
    }


def _telemetry(row: Mapping[str, Json]) -> dict[str, Json]:
    if (error := row.get("error_message")) is not None:
        return {"status": "error", "error": {"message": str(error)}}
    found: dict[str, Json] = {"status": "ok"}
    if isinstance(seconds := row.get("task_duration"), int | float):
        found["latencyMs"] = round(seconds * 1000)
    usage = row.get("metrics")
    if isinstance(usage, dict):
        found |= {ours: usage[theirs] for theirs, ours in _USAGE.items() if theirs in usage}
    return found


def _text(value: Json) -> Json:
    """Return a text as it is, a chat as its messages, and any other value as its JSON text."""
    if value is None or (isinstance(value, str | int | float) and not isinstance(value, bool)):
        return value
    return value if is_chat(value) else json_bytes(value).decode()
