"""Select metrics by their cost class on the command line."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, CostClass, Registry
from evaltap.schemas import EvalMetric
from support.builders.cases import RUBRIC, TRAJECTORY, make_case

LOCAL = {
    "metricName": "embedding_similarity",
    "threshold": 0.5,
    "criterion": {"embedding": {"model": {"providerName": "wordllama"}}},
}


def write(folder: Path, case: dict[str, Any], *metrics: dict[str, Any]) -> list[str]:
    cases, metrics_file = folder / "cases.jsonl", folder / "metrics.json"
    cases.write_text(json.dumps(case) + "\n")
    metrics_file.write_text(json.dumps(metrics))
    return ["score", str(cases), "--metrics", str(metrics_file), "--json"]


def test_each_metric_has_a_class() -> None:
    remote = LOCAL | {"criterion": {"embedding": {"model": {"modelName": "m"}}}}
    metrics = [EvalMetric.model_validate(one) for one in (TRAJECTORY, LOCAL, remote, RUBRIC)]

    assert CaseScorer(metrics).cost_classes() == [
        CostClass.FREE, CostClass.LOCAL_MODEL, CostClass.PAID_JUDGE, CostClass.PAID_JUDGE
    ]  # fmt: skip


def test_an_evaluator_of_ones_own_may_say_its_class() -> None:
    class Dear:
        name, version, cost_class = "dear", "1", "paid_judge"

        def __init__(self, metric: EvalMetric) -> None:
            pass

        def evaluate(self, context: Any) -> Any:
            raise NotImplementedError

    scorer = CaseScorer([EvalMetric(metric_name="dear")], registry=Registry({"dear": Dear}))

    assert scorer.cost_classes() == [CostClass.PAID_JUDGE]


def test_metrics_of_other_classes_are_not_run_and_that_is_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    case = make_case(conversation=make_case()["actualConversation"])
    command = write(tmp_path, case, TRAJECTORY, LOCAL, RUBRIC)

    assert main([*command, "--cost-class", "free,local_model"]) == 0

    out, err = capsys.readouterr()
    assert json.loads(out)["not_run"] == ["llm_rubric_response"]
    assert [one["metric_name"] for one in json.loads(out)["metrics"]] == [
        "tool_trajectory_avg_score", "embedding_similarity"
    ]  # fmt: skip
    assert (
        "skipped because of --cost-class free,local_model: llm_rubric_response (paid_judge)" in err
    )


def test_the_rubrics_that_a_case_adds_to_a_metric_that_is_not_run_do_no_harm(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    added = [{"metricName": "llm_rubric_response", "content": {"text": "Polite?"}}]
    case = make_case(conversation=make_case()["actualConversation"], rubrics=added)
    command = write(tmp_path, case, TRAJECTORY, RUBRIC)

    assert main([*command, "--cost-class", "free"]) == 0


def test_a_choice_that_leaves_nothing_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command = write(tmp_path, make_case(), RUBRIC)

    assert main([*command, "--cost-class", "free"]) == 2
    assert (
        "no metric has this class; found llm_rubric_response (paid_judge)"
        in capsys.readouterr().err
    )

    with pytest.raises(SystemExit) as caught:
        main([*command, "--cost-class", "cheap"])
    assert caught.value.code == 2
    assert "expected one of free, local_model, paid_judge" in capsys.readouterr().err
