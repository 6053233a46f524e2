"""Scoring a case: layouts, statuses, failures as values, evaluators by name, missing evidence."""

import pickle
from typing import Any

import pytest

from evaltap.evaluator.cases.pairing import UnscorableCaseError, pair_turns, with_case_rubrics
from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Services,
    Status,
    TurnScore,
)
from evaltap.evaluator.scoring.contract.errors import MetricError, UnknownEvaluatorError
from evaltap.evaluator.scoring.contract.evaluator import Registry
from evaltap.evaluator.scoring.scorer import CaseScore, CaseScorer
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_tool, make_turn

BOTH = [EvalMetric.model_validate(TRAJECTORY), EvalMetric.model_validate(RESPONSE)]


class Fixed:
    """An evaluator that returns or raises what it was made with."""

    name = "fixed"
    version = "7"

    def __init__(self, outcome: MetricScore | EvaluatorFailure | Exception) -> None:
        self._outcome = outcome

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        if isinstance(self._outcome, BaseException):
            raise self._outcome
        return self._outcome


def fixed(outcome: MetricScore | EvaluatorFailure | Exception) -> Registry:
    return Registry({"fixed": lambda metric: Fixed(outcome)})


def score(case: dict[str, Any], metrics: list[EvalMetric] | None = None) -> CaseScore:
    return CaseScorer(BOTH if metrics is None else metrics).score(case)


def compared(actual: list[dict[str, Any]], expected: list[dict[str, Any]]) -> dict[str, Any]:
    return make_case(turns=actual, conversation=expected)


# -- layouts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"sessionInput": None}, "sessionInput is missing"),
        ({"evalMode": ""}, "only supported in trace mode"),
        (
            {"evalMode": "", "actualConversation": [], "sessionInput": None},
            "needs the agent to run: do so with `evaltap run`",
        ),
        ({"conversationScenario": {}}, "conversationScenario is not supported in trace mode"),
        ({"expectedRunnerEnabled": True}, "needs a runner"),
        ({"actualConversation": []}, "invocations are empty"),
        ({"actualConversation": [None]}, "actualConversation[0] is nil"),
        ({"actualConversation": [{"invocationId": "t"}]}, "has no userContent"),
        ({"conversation": [{}, {}]}, "length 1 does not match conversation length 2"),
        ({"rubrics": [None]}, "rubric is nil"),
        ({"actualConversation": 7}, "malformed"),
        ({"actualConversation": ["turn"]}, "malformed"),
        ({"rubrics": [{"metricName": 1, "content": 2}]}, "malformed"),
    ],
)
def test_a_case_that_cannot_be_laid_out_fails_with_the_reason(
    change: dict[str, Any], says: str
) -> None:
    result = score(make_case(**change))

    assert (result.status, result.score, result.metrics) == (Status.FAILED, None, ())
    assert says in result.error_message


def test_without_reference_the_expected_turns_are_placeholders() -> None:
    conversation = pair_turns(make_case())

    placeholder = conversation.expected[0]
    assert set(placeholder.data) == {"invocationId", "userContent"}
    assert (placeholder.tools, placeholder.final_text) == ([], None)
    assert [outcome.status for outcome in score(make_case()).metrics] == ["failed", "passed"]


def test_a_null_turn_of_a_lone_conversation_has_an_empty_placeholder() -> None:
    conversation = pair_turns(make_case(actualConversation=[], conversation=[None]))

    assert conversation.actual[0].absent
    assert not conversation.expected[0].absent


def test_context_messages_of_the_case_go_to_turns_without_their_own() -> None:
    own = [{"role": "system", "content": "own"}]
    case = compared([make_turn(contextMessages=own), make_turn("t-2")], [make_turn(), make_turn()])
    shared = [{"role": "system", "content": "shared"}]

    conversation = pair_turns({**case, "contextMessages": [None, *shared]})

    assert [turn.data["contextMessages"] for turn in conversation.actual] == [own, shared]
    assert [turn.data["contextMessages"] for turn in conversation.expected] == [shared, shared]
    assert "contextMessages" not in case["conversation"][0]


@pytest.mark.parametrize(
    ("rubric", "says"),
    [
        ({"content": {"text": "t"}}, "metricName is empty"),
        ({"metricName": "judged", "id": "1"}, "content text is empty"),
        ({"metricName": "judged", "content": {"text": " "}}, "content text is empty"),
        ({"metricName": "judged", "id": "1", "content": {"text": "t"}}, "two rubrics with id '1'"),
        ({"metricName": "other", "content": {"text": "t"}}, "metric other not found"),
        ({"metricName": "plain", "content": {"text": "t"}}, "llmJudge criterion is required"),
    ],
)
def test_a_bad_case_rubric_is_a_problem_of_the_case(rubric: dict[str, Any], says: str) -> None:
    judged = {"llmJudge": {"rubrics": [{"id": "1", "content": {"text": "t"}}]}}
    metrics = [
        EvalMetric.model_validate({"metricName": "judged", "criterion": judged}),
        EvalMetric(metric_name="plain"),
    ]

    with pytest.raises(UnscorableCaseError, match=says):
        with_case_rubrics(metrics, [rubric])


# -- statuses --------------------------------------------------------------------------------------


def test_the_metric_is_the_mean_over_turns_and_its_threshold_holds_for_turns_too() -> None:
    metric = EvalMetric.model_validate({**TRAJECTORY, "threshold": 0.5})
    other = make_turn("t-2", tools=[make_tool("other")])
    case = compared([make_turn(), other], [make_turn(), make_turn()])

    outcome = score(case, [metric]).metrics[0]

    assert (outcome.status, outcome.score) == (Status.PASSED, 0.5)
    assert [turn.status for turn in outcome.turns] == ["passed", "failed"]
    assert outcome.reason.startswith("turn 2: tool trajectory mismatch: ")


def test_a_threshold_of_zero_passes_a_turn_that_does_not_match() -> None:
    metric = EvalMetric.model_validate({**TRAJECTORY, "threshold": 0})

    outcome = score(make_case(), [metric]).metrics[0]

    assert (outcome.turns[0].status, outcome.turns[0].score) == (Status.PASSED, 0)


@pytest.mark.parametrize(
    ("statuses", "status", "value"),
    [
        ([], Status.NOT_EVALUATED, None),
        ([Status.NOT_EVALUATED], Status.NOT_EVALUATED, None),
        ([Status.NOT_EVALUATED, Status.PASSED], Status.PASSED, 1.0),
        ([Status.PASSED, Status.FAILED], Status.FAILED, 0.0),
        ([Status.PASSED, Status.ERROR], Status.FAILED, None),
        ([Status.ERROR, Status.FAILED], Status.FAILED, 0.0),
    ],
)
def test_the_case_is_failed_over_passed_over_not_evaluated(
    statuses: list[Status], status: Status, value: float | None
) -> None:
    factories = {
        f"m{place}": lambda metric, one=one: Fixed(
            MetricScore(one, None, "because", (TurnScore(one),))
        )
        for place, one in enumerate(statuses)
    }
    metrics = [EvalMetric(metric_name=name) for name in factories]

    result = CaseScorer(metrics, registry=Registry(factories)).score(make_case())

    assert (result.status, result.score) == (status, value)
    assert bool(result.error_message) == (Status.ERROR in statuses)


# -- failures are values ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("outcome", "says", "kind"),
    [
        (EvaluatorFailure("no luck", "Luck"), "no luck", "Luck"),
        (RuntimeError("boom"), "RuntimeError: boom", "RuntimeError"),
        (SystemExit(0), "SystemExit: 0", "SystemExit"),
        (MetricScore(Status.PASSED, 1, "", ()), "0 turn rows, expected 1", "RowCountMismatch"),
    ],
)
def test_a_failing_evaluator_fails_its_case_but_no_other_metric(
    outcome: Any, says: str, kind: str
) -> None:
    metrics = [EvalMetric(metric_name="fixed"), BOTH[1]]

    result = CaseScorer(metrics, registry=fixed(outcome)).score(make_case())

    broken, sound = result.metrics
    assert (broken.status, broken.score, broken.error_type) == (Status.ERROR, None, kind)
    assert says in broken.reason
    assert sound.status is Status.PASSED
    assert result.status is Status.FAILED
    assert result.error_message == f"metric fixed: {broken.reason}"


def test_turns_that_do_not_pair_up_are_a_failure() -> None:
    evaluator = Registry().build(BOTH[0])
    context = EvaluationContext({}, (Turn({}),), (), BOTH[0], Services())

    outcome = evaluator.evaluate(context)

    assert isinstance(outcome, EvaluatorFailure)
    assert "1 actual, 0 expected" in outcome.reason


# -- evaluators by name ----------------------------------------------------------------------------


def test_an_unknown_evaluator_says_where_the_installed_ones_are_listed() -> None:
    with pytest.raises(UnknownEvaluatorError) as caught:
        CaseScorer([EvalMetric(metric_name="run_succeded")])

    told = "no evaluator named 'run_succeded'; did you mean 'run_succeeded'? see `evaltap metrics`"
    assert str(caught.value).startswith(told)
    assert caught.value.installed == Registry().names()
    assert isinstance(caught.value, EvaltapError)
    assert caught.value.exit_code == 2


def test_an_unknown_evaluator_may_be_skipped() -> None:
    scorer = CaseScorer([EvalMetric(metric_name="nope"), BOTH[1]], unknown_metrics="skip")

    assert [outcome.name for outcome in scorer.score(make_case()).metrics] == [BOTH[1].metric_name]
    assert scorer.metrics == [BOTH[1]]


def test_the_evaluator_name_routes_a_metric() -> None:
    metric = EvalMetric.model_validate(
        {**RESPONSE, "metricName": "greets", "evaluatorName": "final_response_avg_score"}
    )

    outcome = score(make_case(), [metric]).metrics[0]

    assert (outcome.name, outcome.status, outcome.evaluator_version) == ("greets", "passed", "2")


@pytest.mark.parametrize(
    ("name", "criterion"),
    [("tool_trajectory_avg_score", {"llmJudge": {}}), ("rule_avg_score", None)],
)
def test_a_metric_without_its_criterion_is_refused(
    name: str, criterion: dict[str, Any] | None
) -> None:
    metric = EvalMetric.model_validate({**TRAJECTORY, "metricName": name, "criterion": criterion})

    with pytest.raises(MetricError) as caught:
        CaseScorer([metric])

    found = "llmJudge" if criterion else "no criterion"
    assert str(caught.value).startswith(f"metric '{name}': criterion.")
    assert f"not configured: found {found}; add criterion." in str(caught.value)


@pytest.mark.parametrize("tool", ["get_order", "refund"])
def test_a_metric_of_the_guide_without_criterion_compares_name_arguments_and_result(
    tool: str,
) -> None:
    metric = EvalMetric(metric_name="tool_trajectory_avg_score", threshold=1)
    case = make_case(conversation=[make_turn(tools=[make_tool(tool)])])

    status = CaseScorer([metric]).score(case).status

    assert status == ("passed" if tool == "get_order" else "failed")


# -- evidence --------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["missing", "redacted", "truncated"])
@pytest.mark.parametrize("side", ["actual", "expected"])
def test_a_turn_without_compared_evidence_is_not_evaluated(state: str, side: str) -> None:
    marked = make_turn(capture={"tools": state, "finalResponse": state})
    turns = (marked, make_turn()) if side == "actual" else (make_turn(), marked)

    result = score(compared([turns[0]], [turns[1]]))

    prefix = "expected " if side == "expected" else ""
    reasons = [
        f"evidence missing: {prefix}tools is {state}",
        f"evidence missing: {prefix}finalResponse is {state}",
    ]
    if (side, state) == ("expected", "missing"):  # not lost: the case says that it expects nothing
        reasons = [
            "not applicable: the case expects no particular calls",
            "not applicable: the case expects no particular answer",
        ]
    assert [outcome.reason for outcome in result.metrics] == reasons
    assert {outcome.status for outcome in result.metrics} == {Status.NOT_EVALUATED}
    assert (result.status, result.score) == (Status.NOT_EVALUATED, None)


@pytest.mark.parametrize("state", ["synthesized", "ambiguous"])
def test_weaker_marks_do_not_stop_an_evaluation(state: str) -> None:
    turn = make_turn(capture={"tools": state, "finalResponse": state, "sessionId": "missing"})

    assert score(compared([turn], [make_turn()])).status is Status.PASSED


def test_a_tools_evidence_counts_only_when_its_strategy_compares_it() -> None:
    case = compared(
        [make_turn(tools=[make_tool(result=1, capture={"result": "truncated"})])],
        [make_turn(tools=[make_tool(result=2)])],
    )
    strict = EvalMetric.model_validate({**TRAJECTORY, "criterion": {"toolTrajectory": {}}})

    assert score(case, [BOTH[0]]).status is Status.PASSED
    outcome = score(case, [strict]).metrics[0]
    assert outcome.status is Status.NOT_EVALUATED
    assert "result of tool id call-1 with name get_order is truncated" in outcome.reason


def test_turns_without_evidence_do_not_lower_the_mean() -> None:
    turns = [make_turn(), make_turn("t-2", capture={"finalResponse": "redacted"})]

    outcome = score(make_case(turns=turns), [BOTH[1]]).metrics[0]

    assert (outcome.status, outcome.score) == (Status.PASSED, 1)
    assert [turn.score for turn in outcome.turns] == [1, None]


# -- values ----------------------------------------------------------------------------------------


def test_a_scorer_does_not_change_the_case_and_its_scores_can_be_sent_elsewhere() -> None:
    case = make_case()
    before = pickle.dumps(case)

    result = score(case)

    assert pickle.dumps(case) == before
    assert pickle.loads(pickle.dumps(result)) == result
