"""The public call for one case: its result in file format, valid rows preserved, statuses in the file."""

import asyncio
import importlib
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import evaltap.evaluator
from evaltap.evaluator import (
    EvaluatorFailure,
    Registry,
    UnknownEvaluatorError,
    evaluate_case,
    evaluate_case_async,
)
from evaltap.schemas import EvalCase, EvalMetric
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.documents import read_eval_set, read_metrics
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_turn

EXAMPLES = Path(__file__).parents[2] / "data" / "trpc-examples"
BOTH = [EvalMetric.model_validate(TRAJECTORY), EvalMetric.model_validate(RESPONSE)]


class Failing:
    """An evaluator that never has a result."""

    name = "failing"
    version = "1"

    def evaluate(self, context: object) -> EvaluatorFailure:
        return EvaluatorFailure("no luck", "Luck")


def test_a_result_has_rows_for_each_turn_and_joined_reasons_in_the_overall_row() -> None:
    turns = [make_turn("t-1"), make_turn("t-2")]
    case = make_case(turns=turns, conversation=turns)

    result = evaluate_case(case, BOTH, eval_set_id="set", run_id=2)

    assert (result.final_eval_status, result.score, result.error_message) == ("passed", 1, "")
    assert (result.eval_set_id, result.eval_id, result.run_id) == ("set", "s-1", 2)
    assert (result.session_id, result.user_id) == ("s-1", "user")
    overall = result.model_dump(by_alias=True)["overallEvalMetricResults"][0]
    assert overall["details"] == {"reason": ";", "score": 1}
    assert overall["criterion"] == TRAJECTORY["criterion"]
    rows = result.model_dump(by_alias=True)["evalMetricResultPerInvocation"]
    assert [row["actualInvocation"]["invocationId"] for row in rows] == ["t-1", "t-2"]
    assert rows[0]["evalMetricResults"][0]["details"] == {
        "score": 1,
        "value": {"kind": "numeric", "numeric": 1},
    }


def test_metrics_may_be_data_and_are_validated_as_those_of_a_file() -> None:
    case = make_case(conversation=[make_turn()])

    assert evaluate_case(case, [TRAJECTORY, BOTH[1]]) == evaluate_case(case, BOTH)
    wrong: Any
    for wrong, says in (
        ({**TRAJECTORY, "metricName": ""}, "without `metricName`"),
        ({**TRAJECTORY, "threshold": "high"}, "threshold"),
        (7, "expected an object"),
    ):
        with pytest.raises(FormatError, match=says):
            evaluate_case(case, [wrong])
    with pytest.raises(FormatError, match="occurs twice"):
        evaluate_case(case, [TRAJECTORY, TRAJECTORY])


def test_a_failed_metric_keeps_the_rows_of_the_others() -> None:
    metrics = [EvalMetric(metric_name="failing", threshold=1), BOTH[1]]
    registry = Registry({"failing": lambda metric: Failing()})

    result = evaluate_case(make_case(), metrics, registry=registry)

    assert result.final_eval_status == "failed"
    assert result.error_message == "metric failing: no luck"
    broken, sound = result.model_dump(by_alias=True)["overallEvalMetricResults"]
    assert broken == {
        "metricName": "failing",
        "evalStatus": "not_evaluated",
        "threshold": 1,
        "details": {"reason": "no luck"},
        "error": {"type": "Luck", "message": "no luck"},
    }
    assert sound["evalStatus"] == "passed"
    per_turn = result.eval_metric_result_per_invocation[0].eval_metric_results
    assert [row.metric_name for row in per_turn] == [BOTH[1].metric_name]


def test_a_metric_without_criterion_has_the_one_that_the_command_line_gives_it() -> None:
    bare = EvalMetric(metric_name="tool_trajectory_avg_score", threshold=1)

    result = evaluate_case(make_case(), [bare, BOTH[1]])

    assert not result.error_message
    trajectory, answer = result.overall_eval_metric_results
    assert trajectory.score is not None
    assert trajectory.criterion is not None
    assert trajectory.criterion.tool_trajectory is not None
    assert answer.eval_status == "passed"


def test_a_broken_case_is_a_failed_result_without_rows() -> None:
    result = evaluate_case(make_case(sessionInput=None), BOTH)

    assert result.final_eval_status == "failed"
    assert result.error_message is not None
    assert 'add "sessionInput": {}' in result.error_message
    assert result.overall_eval_metric_results == []
    assert result.eval_metric_result_per_invocation == []


def test_an_unknown_evaluator_raises_unless_skipped() -> None:
    unknown = [EvalMetric(metric_name="nope")]

    with pytest.raises(UnknownEvaluatorError):
        evaluate_case(make_case(), unknown)
    result = evaluate_case(make_case(), unknown, unknown_metrics="skip")
    assert result.final_eval_status == "not_evaluated"


def test_a_model_and_its_data_give_the_same_result() -> None:
    data = make_case(conversation=[make_turn(answer="other")])

    assert evaluate_case(EvalCase.model_validate(data), BOTH) == evaluate_case(data, BOTH)


def test_the_async_twin_gives_the_same_result() -> None:
    case = make_case()

    assert asyncio.run(evaluate_case_async(case, BOTH)) == evaluate_case(case, BOTH)


def test_the_peers_recorded_trajectory_result_is_reproduced() -> None:
    folder = EXAMPLES / "tooltrajectory"
    (path,) = folder.glob("*.evalset_result.json")
    recorded: dict[str, Any] = json.loads(path.read_text())["evalCaseResults"][0]
    row = recorded["evalMetricResultPerInvocation"][0]
    case = {
        "evalId": recorded["evalId"],
        "evalMode": "trace",
        "actualConversation": [row["actualInvocation"]],
        "conversation": [row["expectedInvocation"]],
        "sessionInput": {"appName": "app", "userId": recorded["userId"]},
    }
    metrics = read_metrics(next(folder.glob("*.metrics.json")))

    result = evaluate_case(case, metrics).model_dump(by_alias=True)

    for key in ("evalId", "finalEvalStatus", "overallEvalMetricResults", "userId"):
        assert result[key] == recorded[key]
    turn = result["evalMetricResultPerInvocation"][0]
    assert turn["actualInvocation"] == row["actualInvocation"]
    assert turn["expectedInvocation"] == row["expectedInvocation"]
    assert turn["evalMetricResults"][0]["score"] == 1


def test_the_peers_trace_example_scores_without_a_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("MODEL", "BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"EVALTAP_JUDGE_{name}", raising=False)
        monkeypatch.delenv(f"JUDGE_MODEL_{name}", raising=False)
    folder = EXAMPLES / "trace"
    case = read_eval_set(folder / "trace-basic.evalset.json").eval_cases[0]

    result = evaluate_case(case, read_metrics(folder / "trace-basic.metrics.json"))

    statuses = [row.eval_status for row in result.overall_eval_metric_results]
    assert statuses == ["passed", "not_evaluated"]
    assert result.final_eval_status == "passed"


def test_the_public_names_are_sorted_and_all_there() -> None:
    names = evaltap.evaluator.__all__

    assert names == sorted(names)
    for name in names:
        assert getattr(evaltap.evaluator, name) is not None
    assert dir(evaltap.evaluator) == names
    with pytest.raises(AttributeError, match="nope"):
        importlib.import_module("evaltap.evaluator").__getattr__("nope")


def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = ["pydantic", "duckdb", "nltk", "openai", "re2", "jsonschema", "numpy"]
    code = f"import sys, evaltap.evaluator; print([m for m in {heavy} if m in sys.modules])"

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"


@pytest.mark.slow
def test_scoring_by_fixed_rules_needs_neither_stemmer_nor_judge_client() -> None:
    code = (
        "import sys; from evaltap.evaluator import CaseScorer; from evaltap.schemas import "
        "EvalMetric; CaseScorer([EvalMetric.model_validate({'metricName': "
        "'final_response_avg_score', 'criterion': {'finalResponse': {'text': {}}}})]); "
        "print([m for m in ['nltk', 'openai', 're2', 'jsonschema', 'duckdb'] if m in sys.modules])"
    )

    loaded = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )

    assert loaded.stdout.strip() == "[]"
