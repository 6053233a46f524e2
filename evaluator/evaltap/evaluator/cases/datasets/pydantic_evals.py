"""Data sets and reports of Pydantic Evals as rows.

Source: `Dataset.to_file` and `EvaluationReportAdapter.dump_json` of pydantic-evals 2.62.
"""

from collections.abc import Mapping
from typing import Final

from evaltap.evaluator.cases.datasets.columns import RUN, TELEMETRY
from evaltap.evaluator.cases.datasets.results import as_asked, as_text, ended
from evaltap.schemas.data import Json

_DATASET: Final = {"$schema", "name", "cases", "evaluators", "report_evaluators"}
_REPORT: Final = ("cases", "failures")


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
    return {**case, "expected_output": as_asked(wanted)} if wanted is not None else case


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
        "input": as_asked(row.get("inputs")),
        "output": as_text(row.get("output")),
        "expected_output": as_text(row.get("expected_output")),
        TELEMETRY: _telemetry(row),
    }


def _telemetry(row: Mapping[str, Json]) -> dict[str, Json]:
    seconds, usage = row.get("task_duration"), row.get("metrics")
    usage = usage if isinstance(usage, dict) else {}
    return ended(
        row.get("error_message"),
        latencyMs=round(seconds * 1000) if isinstance(seconds, int | float) else None,
        costUsd=usage.get("cost"),
        inputTokens=usage.get("input_tokens"),
        outputTokens=usage.get("output_tokens"),
    )
