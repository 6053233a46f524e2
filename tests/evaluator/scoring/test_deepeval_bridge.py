"""The parts of the DeepEval adapter that need no DeepEval; `deepeval_proof.py` tests the rest."""

from importlib.util import find_spec
from typing import Any

import pytest

from evaltap.cli.scoring import thresholds_of_deepeval
from evaltap.evaluator import MetricError, Registry, Turn
from evaltap.evaluator.cases.json_path import read_path
from evaltap.evaluator.scoring.evaluators.deepeval.bridge import conversation_fields, turn_fields
from evaltap.schemas import EvalMetric
from evaltap.schemas.errors import InputError
from support.builders.cases import make_case, make_tool, make_turn


def fields(turn: dict[str, Any], expected: dict[str, Any] | None = None, **given: Any) -> Any:
    session = {"appName": "a", "userId": "u", "state": {"context": ["Bern is in Switzerland.", 7]}}
    options: dict[str, Any] = {"context_path": None, "retrieval_tools": [], **given}
    case = make_case(sessionInput=session)
    return turn_fields(Turn(turn), Turn(expected or {}), case, **options)


@pytest.mark.skipif(find_spec("deepeval") is not None, reason="DeepEval is installed here")
def test_without_the_package_the_metric_says_which_extra_brings_it() -> None:
    metric = {"metricName": "deepeval_metric", "criterion": {"deepeval": {"metric": "BiasMetric"}}}

    with pytest.raises(MetricError, match=r"install evaltap\[deepeval\]"):
        Registry().build(EvalMetric.model_validate(metric))


def test_a_turn_becomes_the_fields_of_a_test_case() -> None:
    tools = [make_tool("search", result=["a", {"b": 1}]), make_tool("note", result="kept")]
    turn = make_turn(tools=tools, telemetry={"costUsd": 0.25, "latencyMs": 1500.0})

    found = fields(
        turn,
        make_turn(answer="expected", tools=[]),
        context_path=read_path("$.sessionInput.state.context"),
        retrieval_tools=["search"],
    )

    order = {"order_id": "A-100"}
    assert found == {
        "input": "Where is order A-100?",
        "actual_output": "done",
        "expected_output": "expected",
        "tools_called": [
            {"name": "search", "input_parameters": order, "output": ["a", {"b": 1}]},
            {"name": "note", "input_parameters": order, "output": "kept"},
        ],
        "expected_tools": [],
        "retrieval_context": ['["a",{"b":1}]'],
        "context": ["Bern is in Switzerland.", "7"],
        "token_cost": 0.25,
        "completion_time": 1.5,
    }


FOUND = [make_tool("search", result="Bern")]


@pytest.mark.parametrize(
    ("turn", "absent"),
    [
        (make_turn(answer=None, tools=FOUND), {"actual_output"}),
        (make_turn(tools=FOUND, capture={"finalResponse": "truncated"}), {"actual_output"}),
        (make_turn(tools=FOUND, capture={"userContent": "redacted"}), {"input"}),
        (make_turn(capture={"tools": "missing"}), {"tools_called", "retrieval_context"}),
        (make_turn(), {"retrieval_context"}),
        (
            make_turn(tools=[make_tool("search", capture={"result": "redacted"})]),
            {"retrieval_context"},
        ),
    ],
)
def test_what_was_not_recorded_is_left_out_of_the_test_case(
    turn: dict[str, Any], absent: set[str]
) -> None:
    whole = {"input", "actual_output", "tools_called", "retrieval_context"}

    assert set(fields(turn, retrieval_tools=["search"])) == whole - absent


def test_a_retrieval_that_returned_nothing_is_no_context() -> None:
    failed = make_tool("search", result=None, error={"message": "timed out"})

    assert "retrieval_context" not in fields(make_turn(tools=[failed]), retrieval_tools=["search"])


def test_a_context_without_a_text_is_left_out() -> None:
    path = read_path("$.sessionInput.state.context")
    case = make_case(sessionInput={"state": {"context": None}})
    options: dict[str, Any] = {"context_path": path, "retrieval_tools": []}

    assert "context" not in turn_fields(Turn(make_turn()), Turn({}), case, **options)
    case["sessionInput"]["state"]["context"] = [None]
    assert "context" not in turn_fields(Turn(make_turn()), Turn({}), case, **options)
    case["sessionInput"]["state"]["context"] = ["Bern", None]
    assert turn_fields(Turn(make_turn()), Turn({}), case, **options)["context"] == ["Bern"]


def test_an_expected_turn_that_tells_no_tools_expects_nothing_of_them() -> None:
    assert "expected_tools" not in fields(make_turn(), {"finalResponse": {"content": "x"}})


def test_a_conversation_is_all_its_messages_or_none() -> None:
    two = [Turn(make_turn(answer="one")), Turn(make_turn(answer="two", tools=[]))]

    found = conversation_fields(two)

    assert not isinstance(found, str)
    assert [(one["role"], one["content"]) for one in found[1::2]] == [
        ("assistant", "one"), ("assistant", "two")
    ]  # fmt: skip
    assert ["tools_called" in one for one in found] == [False, True, False, False]
    assert conversation_fields([*two, Turn(make_turn(answer=None))]) == "finalResponse is absent"


def test_deepevals_variables_set_the_thresholds_of_its_metrics(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    metrics = [
        EvalMetric.model_validate(
            {"metricName": name, "threshold": 0.5, "criterion": {"deepeval": {"metric": kind}}}
        )
        for name, kind in (
            ("relevant", "AnswerRelevancyMetric"), ("grade", "own.module:GEval"), ("other", "BiasMetric")
        )
    ]  # fmt: skip
    monkeypatch.setenv("DEEPEVAL_ANSWER_RELEVANCY_THRESHOLD", "0.4")
    monkeypatch.setenv("DEEPEVAL_G_EVAL_THRESHOLD", "0.9")

    assert thresholds_of_deepeval("score", metrics) == {"relevant": 0.4, "grade": 0.9}

    assert "relevant: DEEPEVAL_ANSWER_RELEVANCY_THRESHOLD=0.4" in capsys.readouterr().err
    monkeypatch.setenv("DEEPEVAL_G_EVAL_THRESHOLD", "lots")
    with pytest.raises(
        InputError, match="DEEPEVAL_G_EVAL_THRESHOLD: found 'lots'; expected a share"
    ):
        thresholds_of_deepeval("score", metrics)
