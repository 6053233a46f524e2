"""Settings that are unknown or invalid stop a command before the first case."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.evaluator import CaseScorer, MetricError
from evaltap.evaluator.scoring.settings import surprises
from evaltap.schemas import EvalMetric
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn

F1 = {"metricName": "trajectory_f1", "threshold": 0.9, "criterion": {"trajectory": {}}}


def text(**given: Any) -> dict[str, Any]:
    return RESPONSE | {"criterion": {"finalResponse": {"text": given}}}


def response(**given: Any) -> dict[str, Any]:
    return RESPONSE | {"criterion": {"finalResponse": given}}


def calls(**given: Any) -> dict[str, Any]:
    return TRAJECTORY | {"criterion": {"toolTrajectory": given}}


def rules(rule: dict[str, Any]) -> dict[str, Any]:
    one = {"id": "q", "type": "contains", "values": ["q"], **rule}
    return {
        "metricName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [one]}},
    }


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (
            text(matchStrategi="contains"),
            "finalResponse.text has the unknown key 'matchStrategi'; did",
        ),
        (text(matchStrategy="fuzzy"), "matchStrategy is 'fuzzy'; expected one of exact, contains"),
        (text(matchStrategy="contain"), "did you mean 'contains'?"),
        (text(length={"min": 5, "max": 1}), "length: min is 5 and max is 1"),
        (response(), "criterion.finalResponse: is empty; give text, json, rouge or xml"),
        (response(rouge={"rougeType": "rougeX"}), "expected rouge1, rouge2"),
        (
            response(rouge={"rougeType": "rouge1", "measure": "f2"}),
            "measure is 'f2'; expected one of",
        ),
        (response(json={"onlyTree": {"a": True}, "ignoreTree": {"b": True}}), "cannot both be set"),
        (response(xml={"valid": True}), "expected skip"),
        (calls(subset=True), "unknown key 'subset'; did you mean 'subsetMatching'?"),
        (
            calls(toolStrategy={"send": {"argument": {}}}),
            "toolStrategy.send has the unknown key 'argument'; did you mean 'arguments'?",
        ),
        (rules({"target": "userContent"}), "'target'; it belongs one level up, beside rules[0]"),
        (rules({"min": 3}), "rules[0] 'q' (contains): min is read by length only; take it out"),
        (rules({"value": "q"}), "value is read by exact and regex only"),
        (F1 | {"treshold": 0.9}, "found the unknown key 'treshold'; did you mean 'threshold'?"),
        (F1 | {"criterion": {"trajectori": {}}}, "did you mean 'trajectory'?"),
        (F1 | {"threshold": 80}, "threshold is 80; scores are from 0 to 1"),
        (
            {
                "metricName": "llm_rubric_response",
                "threshold": 1,
                "criterion": {"llmJudge": {"judgeModel": {}, "numSamples": 3}},
            },
            "has the unknown key 'numSamples'; it belongs one level down, in judgeModel",
        ),
    ],
)
def test_a_setting_that_cannot_be_meant_is_refused_before_the_first_case(
    metric: dict[str, Any], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "m.json").write_text(json.dumps([metric]))
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case()) + "\n")

    code = main(["score", str(tmp_path / "c.jsonl"), "--metrics", str(tmp_path / "m.json")])

    out, err = capsys.readouterr()
    assert (code, out) == (2, "")
    assert message in err


@pytest.mark.parametrize("key", [{}, {"treshold": 0.9}])
def test_a_metric_without_a_threshold_is_refused(
    key: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metric = {name: value for name, value in F1.items() if name != "threshold"} | key
    (tmp_path / "m.json").write_text(json.dumps([metric]))
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case()) + "\n")

    code = main(["score", str(tmp_path / "c.jsonl"), "--metrics", str(tmp_path / "m.json")])

    err = capsys.readouterr().err
    assert code == 2
    assert "[0]: metric 'trajectory_f1' has no \"threshold\"" in err
    assert bool(key) == ('"treshold" is unknown; did you mean "threshold"?' in err)


@pytest.mark.parametrize("command", ["score", "gate"])
@pytest.mark.parametrize(
    ("member", "message"),
    [
        ({}, "criterion.suite: metrics[0] 'trajectory_f1' has no \"threshold\"; add"),
        ({"treshold": 0.9}, '"treshold" is unknown; did you mean "threshold"?'),
    ],
)
def test_a_member_of_a_suite_without_a_threshold_is_refused(
    command: str,
    member: dict[str, Any],
    message: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    inner = {name: value for name, value in F1.items() if name != "threshold"} | member
    suite = {
        "metricName": "metric_suite",
        "threshold": 1,
        "criterion": {"suite": {"metrics": [inner]}},
    }
    gate = {"dimensions": [{"name": "all", "threshold": 1, "metrics": [suite]}]}
    (tmp_path / "m.json").write_text(json.dumps(gate if command == "gate" else [suite]))
    (tmp_path / "c.jsonl").write_text(json.dumps(make_case()) + "\n")
    option = "--gate" if command == "gate" else "--metrics"

    code = main([command, str(tmp_path / "c.jsonl"), option, str(tmp_path / "m.json")])

    assert code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "metric",
    [
        {"metricName": "tool_trajectory_avg_score", "threshold": 1.0},
        {"metricName": "final_response_avg_score", "threshold": 1.0, "extension": {"owner": "qa"}},
        {**TRAJECTORY, "threshold": 0.5},
    ],
)
def test_a_file_of_the_peer_that_relies_on_its_defaults_scores(metric: dict[str, Any]) -> None:
    turn = make_turn(tools=[make_tool()])

    scored = CaseScorer([EvalMetric.model_validate(metric)]).score(
        make_case("a", [turn]) | {"conversation": [turn]}
    )

    assert scored.status == "passed"


def test_the_first_thing_wrong_is_named_with_the_metric() -> None:
    with pytest.raises(MetricError, match=r"metric 'final_response_avg_score': criterion\.final"):
        CaseScorer([EvalMetric.model_validate(text(matchStrategi="exact"))])


@pytest.mark.parametrize(
    ("metric", "notes"),
    [
        (
            calls(
                defaultStrategy={"name": {}, "arguments": {}, "result": {}},
                toolStrategy={"get_time": {"result": {"ignore": True}}},
            ),
            ["criterion.toolTrajectory.toolStrategy.get_time does not compare name and arguments"],
        ),
        (
            response(rouge={"rougeType": "rouge1"}),
            ["criterion.finalResponse.rouge has no threshold, so every answer passes"],
        ),
        ({"metricName": "tool_trajectory_avg_score"}, ["has no threshold, so 0 passes"]),
        (calls(defaultStrategy={"name": {}}), []),
        (
            F1 | {"criterion": {"trajectory": {"maxCalls": 3, "ordered": True}}},
            ["trajectory_f1 does not read criterion.trajectory.maxCalls"],
        ),
        (
            response(text={}) | {"criterion": {"finalResponse": {"text": {}}, "toolUse": {}}},
            ["final_response_avg_score does not read criterion.toolUse"],
        ),
        (
            {
                "metricName": "cheap",
                "evaluatorName": "cost_within",
                "threshold": 1,
                "criterion": {"operations": {"maxCostUsd": 1, "maxSeconds": 5}},
            },
            ["cost_within does not read criterion.operations.maxSeconds"],
        ),
        (
            {
                "metricName": "llm_final_response",
                "threshold": 1,
                "criterion": {
                    "llmJudge": {"judgeModel": {"modelName": "m", "variant": "deepseek"}}
                },
            },
            ["judgeModel.variant 'deepseek' has no effect: requests are those of OpenAI's API"],
        ),
    ],
)
def test_what_a_metric_leaves_out_by_surprise_is_listed(
    metric: dict[str, Any], notes: list[str]
) -> None:
    assert surprises(EvalMetric.model_validate(metric)) == notes
