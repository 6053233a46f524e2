"""Result summaries over runs, with tRPC-Agent-Go's own test rows."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.scoring.results.result_file import eval_set_result, summary
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.result import EvalCaseResult

ROWS = json.loads(
    (Path(__file__).parents[2] / "data/trpc-summary/multirun_summary.json").read_text()
)["vectors"]


def results(rows: list[dict[str, Any] | None]) -> list[EvalCaseResult | None]:
    return [None if row is None else EvalCaseResult.model_validate(row) for row in rows]


def contains(whole: Any, part: Any) -> bool:
    """Tell whether JSON data has at least what `part` has."""
    if isinstance(part, dict):
        return all(key in whole and contains(whole[key], value) for key, value in part.items())
    if isinstance(part, list):
        return len(whole) == len(part) and all(map(contains, whole, part))
    return bool(whole == part)


@pytest.mark.parametrize("row", ROWS, ids=[row["name"] for row in ROWS])
def test_a_summary_is_the_peers(row: dict[str, Any]) -> None:
    given = results(row["evalCaseResults"])

    if row.get("want_error"):
        with pytest.raises(InputError) as error:
            summary(given, row["expected_num_runs"])
        assert all(text in str(error.value) for text in row["error_contains"])
        return

    written = summary(given, row["expected_num_runs"]).model_dump(by_alias=True)
    assert contains(written, row["want_subset"])


def test_several_runs_judge_a_case_by_its_metric_averages() -> None:
    def run(run_id: int, score: float, status: str) -> dict[str, Any]:
        metric = {"metricName": "m", "score": score, "evalStatus": status, "threshold": 0.5}
        return {
            "evalId": "a",
            "runId": run_id,
            "finalEvalStatus": status,
            "overallEvalMetricResults": [metric],
        }

    found = summary(results([run(1, 0, "failed"), run(2, 1, "passed")]), 2)

    assert found.overall_status == "passed"
    assert [run.overall_status for run in found.run_summaries] == ["failed", "passed"]


def test_an_unknown_status_cannot_be_summarised() -> None:
    row = {"evalId": "a", "runId": 1, "finalEvalStatus": "unknown"}

    with pytest.raises(InputError, match="'unknown' cannot be summarised"):
        summary(results([row]), 1)


def test_a_result_without_an_eval_set_id_is_refused() -> None:
    with pytest.raises(InputError, match="evalSetId"):
        eval_set_result("", [], created_at=0.0)
