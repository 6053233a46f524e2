"""`TurnEvaluator`: missing evidence, statuses, reasons and failures, handled in one place."""

from typing import Any

import pytest

from evaltap.evaluator import (
    Case,
    CaseScorer,
    CostClass,
    EvaluationContext,
    EvaluatorFailure,
    Finding,
    MetricOutcome,
    MissingEvidence,
    Registry,
    RubricVerdict,
    Status,
    Turn,
    TurnEvaluator,
    evaluate_case,
)
from evaltap.evaluator.scoring.contract.aggregation import joined_reasons
from evaltap.evaluator.scoring.contract.evaluator import Traits, traits_of
from evaltap.evaluator.scoring.contract.turn_evaluator import CaseResult, TurnResult
from evaltap.schemas import EvalMetric
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn

METRIC = EvalMetric(metric_name="own", threshold=0.5)


class Own(TurnEvaluator):
    """Returns for each turn what the case's turn says in its `state`."""

    def score(self, turn: Turn, expected: Turn, case: Case) -> TurnResult:
        results: dict[str, TurnResult] = {
            "yes": True,
            "half": (0.5, "half of it"),
            "no": (0.0, "none of it"),
            "parts": Finding(0.25, "a quarter", (RubricVerdict("part", 0.25, "some"),), "low"),
            "gone": MissingEvidence("what it needs is gone"),
            "nothing": None,
        }
        return results[turn.data["state"]["is"]]


def outcome(kind: type[TurnEvaluator], *turns: dict[str, Any], **case: Any) -> MetricOutcome:
    scorer = CaseScorer([METRIC], registry=Registry({"own": kind}))
    return scorer.score(make_case(turns=list(turns), **case)).metrics[0]


def turn(state: str, number: int = 1) -> dict[str, Any]:
    return make_turn(f"t-{number}", state={"is": state})


@pytest.mark.parametrize(
    ("state", "status", "score", "reason"),
    [
        ("yes", "passed", 1.0, ""),
        ("half", "passed", 0.5, "half of it"),
        ("no", "failed", 0.0, "none of it"),
        ("parts", "failed", 0.25, "a quarter"),
        ("gone", "not_evaluated", None, "evidence missing: what it needs is gone"),
        ("nothing", "not_evaluated", None, "there is nothing to score"),
    ],
)
def test_a_turn_has_the_status_of_what_was_found(
    state: str, status: str, score: float | None, reason: str
) -> None:
    found = outcome(Own, turn(state))

    assert (found.status, found.score, found.reason) == (status, score, reason)
    assert (found.turns[0].status, found.turns[0].score) == (status, score)


def test_a_finding_brings_its_parts_and_its_typed_value() -> None:
    (row,) = outcome(Own, turn("parts")).turns

    assert [part.id for part in row.rubric_scores] == ["part"]
    assert row.value == "low"


def test_the_reason_of_a_case_names_the_turns_and_repeats_nothing() -> None:
    found = outcome(Own, turn("no", 1), turn("yes", 2), turn("no", 3), turn("half", 4))

    assert found.reason == "turns 1, 3: none of it; turn 4: half of it"
    assert outcome(Own, turn("no", 1), turn("no", 2)).reason == "none of it"


@pytest.mark.parametrize("metric", [TRAJECTORY, RESPONSE])
def test_a_metric_passed_without_a_flaw_has_no_reason(metric: dict[str, Any]) -> None:
    turns = [make_turn(f"t-{number}") for number in range(3)]
    case = make_case(turns=turns, conversation=turns)
    metrics = [EvalMetric.model_validate(metric)]

    assert CaseScorer(metrics).score(case).metrics[0].reason == ""
    # A result file keeps the text of tRPC-Agent-Go, which joins the reasons of all turns.
    details = evaluate_case(case, metrics).overall_eval_metric_results[0].details
    assert details is not None
    assert details.reason == ";;"


@pytest.mark.parametrize(
    ("reasons", "joined"),
    [
        ([], ""),
        (["", "", ""], ""),
        (["a"], "a"),
        (["a", "a"], "a"),
        (["a", ""], "turn 1: a"),
        (["", "a", "b", "a"], "turns 2, 4: a; turn 3: b"),
    ],
)
def test_joined_reasons(reasons: list[str], joined: str) -> None:
    assert joined_reasons(reasons) == joined


class Needy(TurnEvaluator):
    """Needs the answer, the results of all calls, and an expected answer."""

    needs = ("finalResponse", "tools.result")
    needs_expected = ("finalResponse",)

    def score(self, turn: Turn, expected: Turn, case: Case) -> bool:
        return True


@pytest.mark.parametrize(
    ("actual", "expected", "reason"),
    [
        ({"capture": {"finalResponse": "redacted"}}, {}, "finalResponse is redacted"),
        ({"finalResponse": None}, {}, "finalResponse is absent"),
        ({"capture": {"tools": "missing"}}, {}, "tools is missing"),
        (
            {"tools": [make_tool(capture={"result": "truncated"})]},
            {},
            "result of tool get_order is truncated",
        ),
        ({}, {"finalResponse": None}, "expected finalResponse is absent"),
        ({}, {"capture": {"finalResponse": "redacted"}}, "expected finalResponse is redacted"),
    ],
)
def test_a_turn_without_the_needed_evidence_is_not_evaluated(
    actual: dict[str, Any], expected: dict[str, Any], reason: str
) -> None:
    found = outcome(Needy, {**make_turn(), **actual}, conversation=[{**make_turn(), **expected}])

    assert (found.status, found.score) == (Status.NOT_EVALUATED, None)
    assert found.reason == f"evidence missing: {reason}"


def test_calls_that_were_not_made_lack_nothing() -> None:
    bare = make_turn(tools=[])

    assert outcome(Needy, bare, conversation=[make_turn()]).status is Status.PASSED


def test_a_whole_case_may_fail_and_no_other_metric_with_it() -> None:
    class Failing(TurnEvaluator):
        def score_turns(self, context: EvaluationContext) -> CaseResult:
            return EvaluatorFailure("no service", "Unreachable")

    found = outcome(Failing, make_turn())

    assert (found.status, found.reason) == (Status.ERROR, "no service")
    assert (found.error_type, found.turns) == ("Unreachable", ())


def test_the_metric_names_an_evaluator_that_has_no_name_of_its_own() -> None:
    assert Own(METRIC).name == "own"
    assert Own(EvalMetric(metric_name="m", evaluator_name="own")).name == "own"


def test_an_evaluator_that_is_no_subclass_has_the_default_traits() -> None:
    class Bare:
        name = "bare"
        version = "1"

        def evaluate(self, context: EvaluationContext) -> EvaluatorFailure:
            return EvaluatorFailure("", "")

    assert traits_of(Bare()) == Traits()
    assert traits_of(Own(METRIC)) == Traits(threshold=0.5)
    assert CaseScorer([METRIC], registry=Registry({"own": Own})).cost_classes() == [CostClass.FREE]
