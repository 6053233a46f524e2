"""Functions and suites: what a function may return, and when a suite stops."""

from typing import Any

import numpy as np
import pytest

from evaltap.evaluator import (
    CaseScorer,
    CostClass,
    Func,
    MetricError,
    MetricOutcome,
    Registry,
    ScriptedJudge,
    Services,
    Status,
    Suite,
    Turn,
    TurnScore,
)
from evaltap.schemas import Criterion, EvalMetric
from evaltap.schemas.formats.metric import SuiteCriterion, without_key
from support.builders.cases import RESPONSE, RUBRIC, make_case, make_turn

RULE = {
    "metricName": "says_done",
    "evaluatorName": "rule_avg_score",
    "threshold": 1,
    "criterion": {"rules": {"rules": [{"id": "1", "type": "contains", "values": ["done"]}]}},
}
COST = {
    "metricName": "cost_within",
    "threshold": 1,
    "criterion": {"operations": {"maxCostUsd": 0.1}},
}


WANTED = "expected a score, or a score and a reason"


def metric(data: dict[str, Any]) -> EvalMetric:
    return EvalMetric.model_validate(data)


def returns(value: Any) -> Func:
    return Func(lambda turn, expected: value, name="function", threshold=0.5)


def two_words(turn: Turn, expected: Turn) -> float | None:
    """Score an answer by its length, for the tests below."""
    return None if turn.final_text is None else min(1.0, len(turn.final_text.split()) / 2)


# -- functions -------------------------------------------------------------------------------------


def row(value: Any) -> TurnScore:
    return Suite([returns(value)]).evaluate(make_case()).outcomes[0].turns[0]


@pytest.mark.parametrize(
    ("value", "score", "status", "reason"),
    [
        (True, 1, "passed", ""),
        (False, 0, "failed", ""),
        (0.5, 0.5, "passed", ""),
        ((0.25, "too short"), 0.25, "failed", "too short"),
        (np.float32(0.75) > 0.5, 1, "passed", ""),
        ((np.float32(0.25), "too short"), 0.25, "failed", "too short"),
        (np.array([1.0]), None, "error", f"the evaluator returned array([1.]); {WANTED}"),
        (TurnScore(Status.PASSED, 1.0, "fine"), 1, "passed", "fine"),
        (None, None, "not_evaluated", "there is nothing to score"),
        (1.5, None, "error", "score 1.5 is out of range; expected 0 to 1"),
        (float("nan"), None, "error", "score nan is out of range; expected 0 to 1"),
        ("yes", None, "error", f"the evaluator returned 'yes'; {WANTED}"),
        ((1, 2, 3), None, "error", f"the evaluator returned (1, 2, 3); {WANTED}"),
    ],
)  # fmt: skip
def test_what_a_function_may_return(
    value: Any, score: float | None, status: str, reason: str
) -> None:
    found = row(value)

    assert (found.score, found.status, found.reason) == (score, status, reason)


def test_a_function_that_raises_is_an_error_of_its_metric_only() -> None:
    def broken(turn: Turn, expected: Turn) -> float:
        raise KeyError("order")

    outcome = Suite([Func(broken)]).evaluate(make_case()).outcomes[0]
    assert (outcome.name, outcome.status, outcome.score) == ("broken", "error", None)
    assert outcome.reason == "KeyError: 'order'"


def test_a_function_sees_what_was_expected_of_the_turn() -> None:
    same = Func(lambda turn, expected: turn.final_text == expected.final_text, name="same")
    case = make_case(conversation=[make_turn(answer="done")])

    assert Suite([same]).evaluate(case).passed
    assert not Suite([same]).evaluate(make_case()).passed


def test_a_function_that_changes_has_another_version() -> None:
    def one(turn: Turn, expected: Turn) -> bool:
        return True

    def other(turn: Turn, expected: Turn) -> bool:
        return False

    assert Func(one).version == Func(one).version != Func(other).version
    assert Func(one, version="7").version == "7"


def test_a_metric_may_name_a_function_by_its_path() -> None:
    named = {
        "metricName": "brevity",
        "evaluatorName": "python_function",
        "threshold": 1,
        "criterion": {"function": {"path": f"{__name__}:two_words"}},
    }
    found = CaseScorer([metric(named)]).score(
        make_case(turns=[make_turn(answer="done"), make_turn(answer=None)])
    )

    assert [turn.score for turn in found.metrics[0].turns] == [0.5, None]
    with pytest.raises(MetricError, match="threshold is 70; scores are from 0 to 1"):
        CaseScorer([metric(named | {"threshold": 70})])


@pytest.mark.parametrize(
    ("path", "told"),
    [
        ("", "expected package.module:name"),
        ("os.path", "expected package.module:name"),
        ("no.such.module:f", "cannot be imported: No module named 'no'"),
        ("os.path:no_such", "has no attribute 'no_such'"),
        ("os:sep", "is str, not a function"),
    ],
)
def test_a_path_that_leads_to_no_function_is_refused(path: str, told: str) -> None:
    named = {"metricName": "python_function", "criterion": {"function": {"path": path}}}

    with pytest.raises(MetricError) as caught:
        Registry().build(metric(named))
    assert told in str(caught.value)


# -- suites ----------------------------------------------------------------------------------------


def test_a_suite_goes_on_after_a_failure() -> None:
    result = Suite([returns(False), metric(RULE)]).evaluate(make_case())

    assert [outcome.status for outcome in result.outcomes] == ["failed", "passed"]
    assert (result.status, result.score, result.passed) == ("failed", 0.5, False)
    assert result.reason == "function: failed"


def test_a_suite_stops_at_an_error_and_says_what_was_not_run() -> None:
    ran: list[str] = []

    def later(turn: Turn, expected: Turn) -> bool:
        ran.append("later")
        return True

    result = Suite([metric(RULE), returns("garbage"), Func(later)]).evaluate(make_case())

    assert [outcome.status for outcome in result.outcomes] == ["passed", "error", "not_evaluated"]
    assert result.outcomes[2].reason == "not run, as function was in error"
    assert (result.status, result.score, ran) == ("error", None, [])


def test_a_suite_without_some_evidence_does_not_pass() -> None:
    result = Suite([metric(RULE), metric(COST)]).evaluate(make_case())

    assert (result.status, result.score) == ("not_evaluated", 1.0)
    assert "cost was not recorded" in result.reason


def test_a_case_that_cannot_be_laid_out_is_an_error_of_the_first_member() -> None:
    result = Suite([metric(RULE), returns(True)]).evaluate(make_case(evalMode="live"))

    assert (result.status, result.outcomes[1].status) == ("error", "not_evaluated")
    assert "only supported in trace mode" in result.reason


def test_rubrics_of_a_case_reach_the_member_they_name() -> None:
    own, added = (
        f'{{"id": "{name}", "score": {score}, "reason": ""}}'
        for name, score in (("1", 1), ("case_rubric_1", 0))
    )
    judge = ScriptedJudge([f'{{"rubricScores": [{own}, {added}]}}'])
    case = make_case(
        rubrics=[{"metricName": "llm_rubric_response", "content": {"text": "Polite?"}}]
    )

    result = Suite(
        [metric(RULE), metric(RUBRIC)], services=Services(judge=lambda _: judge)
    ).evaluate(case)

    assert [outcome.score for outcome in result.outcomes] == [1, 0.5]


@pytest.mark.parametrize(
    "members", [[], [metric(RULE), metric(RULE)], [returns(1), returns(1)], [RULE]]
)
def test_a_suite_that_makes_no_sense_is_refused(members: list[Any]) -> None:
    with pytest.raises(MetricError):
        Suite(members)


# -- a suite as a metric ---------------------------------------------------------------------------


def as_metric(*members: dict[str, Any], threshold: float = 1.0) -> EvalMetric:
    return metric(
        {
            "metricName": "metric_suite",
            "threshold": threshold,
            "criterion": {"suite": {"metrics": [*members]}},
        }
    )


def score(
    one: EvalMetric, case: dict[str, Any], judge: ScriptedJudge | None = None
) -> MetricOutcome:
    services = Services() if judge is None else Services(judge=lambda _: judge)
    return CaseScorer([one], services=services).score(case).metrics[0]


@pytest.mark.parametrize(
    ("turn", "threshold", "status", "value"),
    [
        (make_turn(telemetry={"costUsd": 0.05}), 1, "passed", 1),
        (make_turn(telemetry={"costUsd": 0.5}), 1, "failed", 0.5),
        (make_turn(telemetry={"costUsd": 0.5}), 0.5, "passed", 0.5),
        (make_turn(), 1, "not_evaluated", None),
        (make_turn(answer="no"), 1, "failed", 0),
        (make_turn(answer="no"), 0.6, "failed", 0),
        (make_turn(answer="no"), 0.5, "not_evaluated", None),
    ],
)
def test_the_score_is_the_share_that_passed_and_a_gap_never_passes(
    turn: dict[str, Any], threshold: float, status: str, value: float | None
) -> None:
    found = score(as_metric(RULE, COST, threshold=threshold), make_case(turns=[turn]))

    assert (found.status, found.score) == (status, value)


def test_a_weight_in_a_suite_is_refused() -> None:
    with pytest.raises(MetricError, match="has a weight, but all metrics of a suite count alike"):
        CaseScorer([as_metric(RULE, COST | {"weight": 2})])


def test_an_error_of_a_member_is_an_error_of_the_suite() -> None:
    found = score(as_metric(RULE, RUBRIC), make_case(), ScriptedJudge(["no verdict"]))

    assert (found.status, found.score, found.error_type) == ("error", None, "SuiteError")
    assert "llm_rubric_response: JudgeInvalid" in found.reason


def test_a_suite_costs_what_its_dearest_member_does() -> None:
    scorer = CaseScorer([as_metric(RULE), as_metric(RULE, RUBRIC) ])  # fmt: skip

    assert scorer.cost_classes() == [CostClass.FREE, CostClass.PAID_JUDGE]


def test_no_key_of_a_judge_in_a_suite_is_written_with_results() -> None:
    judged = RUBRIC | {"criterion": {"llmJudge": {"judgeModel": {"apiKey": "${KEY}"}}}}
    criterion = Criterion(suite=SuiteCriterion(metrics=[metric(judged), metric(RESPONSE)]))

    assert "KEY" not in without_key(criterion).model_dump_json()
