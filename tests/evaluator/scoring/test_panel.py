"""Which judges are called for a turn and when votes suffice: early stop, panels, cascades, quotes,
budgets."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from evaltap.evaluator import CaseScorer, Services
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.judge import (
    BudgetSpentError,
    Judge,
    JudgeError,
    JudgeReply,
    JudgeRequest,
    JudgeUnavailable,
    ScriptedJudge,
)
from evaltap.evaluator.scoring.scorer import MetricOutcome
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel
from support.builders.cases import make_case, make_turn

QUESTION = make_case(turns=[make_turn(answer="It arrives on Friday, by courier.")])


def metric(samples: int = 1, *, name: str = "llm_rubric_response", **more: Any) -> EvalMetric:
    return EvalMetric.model_validate(
        {
            "metricName": name,
            "threshold": 0.6,
            "criterion": {
                "llmJudge": {
                    "rubrics": [{"id": "1", "content": {"text": "States the day."}}],
                    "judgeModel": {"modelName": "first", "numSamples": samples},
                    **more,
                }
            },
        }
    )


def row(score: float, reason: str = "r", **more: Any) -> str:
    return json.dumps({"rubricScores": [{"id": "1", "score": score, "reason": reason, **more}]})


def judges(**by_model: Judge) -> Callable[[JudgeModel | None], Judge]:
    return lambda model: by_model[model.model_name if model else ""]


def score(one: EvalMetric, case: dict[str, Any] = QUESTION, **by_model: Judge) -> MetricOutcome:
    services = Services(judge=judges(**by_model))
    return CaseScorer([one], services=services).score(case).metrics[0]


# -- early stop ------------------------------------------------------------------------------------

SAMPLES = st.lists(st.sampled_from([0.0, 0.5, 0.6, 1.0]), min_size=1, max_size=9)


@pytest.mark.slow
@given(SAMPLES, st.booleans())
def test_stopping_early_changes_no_result(answers: list[float], parallel: bool) -> None:
    def asked(**more: Any) -> tuple[MetricOutcome, int]:
        judge = ScriptedJudge(lambda request: row(answers[request.sample], f"r{request.sample}"))
        one = metric(len(answers), sampleParallelismEnabled=parallel, sampleParallelism=3, **more)
        return score(one, first=judge), len(judge.requests)

    full, all_of_them = asked()
    early, fewer = asked(earlyStop=True)

    assert replace(early, turns=(), applied=full.applied) == replace(full, turns=())
    assert replace(early.turns[0], votes=()) == replace(full.turns[0], votes=())
    assert early.turns[0].votes == full.turns[0].votes[:fewer]
    assert len(answers) // 2 <= fewer <= all_of_them == len(answers)


@pytest.mark.parametrize(
    ("answers", "asked"),
    [([1, 1, 1], 2), ([1, 0, 1], 3), ([0, 0, 1], 2), ([1, 1, 0, 0], 4), ([0, 0, 1, 1], 2),
     ([1, 1, 1, 0, 0], 3), ([1], 1)],
)  # fmt: skip
def test_no_more_samples_are_paid_for_than_decide(answers: list[float], asked: int) -> None:
    judge = ScriptedJudge(row(one) for one in answers)

    score(metric(len(answers), earlyStop=True), first=judge)

    assert len(judge.requests) == asked


def test_an_invalid_answer_is_asked_for_once_more_and_then_ends_the_asking() -> None:
    judge = ScriptedJudge(["garbage"] * 9)

    outcome = score(metric(5, earlyStop=True), first=judge)

    assert outcome.status is Status.ERROR
    assert [request.sample for request in judge.requests] == [0, 1, 2, 0, 1, 2]


def test_a_judge_that_cannot_be_reached_is_not_asked_once_more() -> None:
    judge = ScriptedJudge([JudgeUnavailable("down")] * 9)

    outcome = score(metric(3, earlyStop=True), first=judge)

    assert [request.sample for request in judge.requests] == [0]
    assert [vote.sample for vote in outcome.turns[0].votes] == [0, 1]
    assert outcome.reason == "JudgeUnavailable: down"


def test_a_turn_on_which_samples_differ_does_not_miss_its_score_for_an_invalid_answer() -> None:
    judge = ScriptedJudge([row(1), "garbage", row(1), row(0), row(0), row(1)])

    outcome = score(metric(5, earlyStop=True), first=judge)

    assert outcome.status is Status.PASSED
    assert [request.sample for request in judge.requests] == [0, 1, 2, 1, 3, 4]
    votes = [(vote.sample, vote.status.value) for vote in outcome.turns[0].votes]
    assert votes == [
        *[(0, "passed"), (1, "failed"), (2, "passed"), (3, "failed"), (4, "passed")],
        (-1, "not_evaluated"),
    ], "what the invalid answer cost is kept"


# -- panels ----------------------------------------------------------------------------------------

PANEL: dict[str, Any] = {
    "panel": [{"modelName": "second"}, {"modelName": "third", "numSamples": 3}]
}


@pytest.mark.parametrize(
    ("verdicts", "status", "says"),
    [
        ((1, 1, 1), Status.PASSED, "3 of 3 judges agree: first"),
        ((0, 1, 1), Status.PASSED, "2 of 3 judges agree: second"),
        ((1, 0, 0), Status.FAILED, "2 of 3 judges agree: second"),
        ((0, 0, 1), Status.FAILED, "2 of 3 judges agree: first"),
    ],
)
def test_the_majority_of_a_panel_decides_and_says_how_many_agree(
    verdicts: tuple[int, int, int], status: Status, says: str
) -> None:
    scripted: dict[str, Any] = {
        name: ScriptedJudge([row(verdict, name)] * 3)
        for name, verdict in zip(("first", "second", "third"), verdicts, strict=True)
    }

    outcome = score(metric(**PANEL), **scripted)

    assert (outcome.status, outcome.turns[0].reason) == (status, says)
    assert [vote.judge for vote in outcome.turns[0].votes] == [
        "judge", "panel-1", "panel-2", "panel-2", "panel-2"
    ]  # fmt: skip
    assert [vote.sample for vote in outcome.turns[0].votes] == [0, 1, 2, 3, 4]
    assert [len(judge.requests) for judge in scripted.values()] == [1, 1, 3]


def test_a_member_of_a_panel_without_a_verdict_leaves_none() -> None:
    outcome = score(
        metric(**PANEL),
        first=ScriptedJudge([row(1)]),
        second=ScriptedJudge([JudgeUnavailable("down")]),
        third=ScriptedJudge([row(1)] * 3),
    )

    assert (outcome.status, outcome.score) == (Status.ERROR, None)
    assert outcome.reason == "JudgeUnavailable: down"
    assert sum(vote.status is Status.PASSED for vote in outcome.turns[0].votes) == 4


# -- cascades --------------------------------------------------------------------------------------


def cascade(samples: int = 1, **when: Any) -> EvalMetric:
    return metric(samples, cascade={"judgeModel": {"modelName": "strong"}, **when})


@pytest.mark.parametrize(
    ("cheap", "when", "asked"),
    [
        ([row(1), row(1), row(1)], {}, False),
        ([row(0), row(0), row(0)], {}, False),
        ([row(1), row(0), row(1)], {}, True),
        ([row(1), "garbage", row(1)], {}, True),
        ([row(0.6), row(0.6), row(0.6)], {"margin": 0.1}, True),
        ([row(0.9), row(0.9), row(0.9)], {"margin": 0.1}, False),
        ([row(1, confidence=0.9)] * 3, {"minConfidence": 0.8}, False),
        ([row(1, confidence=0.5)] * 3, {"minConfidence": 0.8}, True),
        ([row(1)] * 3, {"minConfidence": 0.8}, True),
        ([row(1, confidence="very")] * 3, {"minConfidence": 0.8}, True),
        ([JudgeUnavailable("down")], {}, True),
    ],
)
def test_the_strong_judge_is_asked_only_about_what_the_cheap_one_is_not_sure_of(
    cheap: list[str | Exception], when: dict[str, float], asked: bool
) -> None:
    strong = ScriptedJudge([row(0, "strong")])

    outcome = score(cascade(3, **when), first=ScriptedJudge(cheap), strong=strong)

    assert len(strong.requests) == asked
    assert len(outcome.turns[0].votes) == 3 + asked
    if asked:
        assert (outcome.status, outcome.turns[0].reason) == (Status.FAILED, "strong")
        assert outcome.turns[0].votes[-1].judge == "second"


def test_when_the_strong_judge_fails_the_cheap_ones_doubt_is_no_verdict() -> None:
    outcome = score(
        cascade(3),
        first=ScriptedJudge([row(1), row(0), row(1)]),
        strong=ScriptedJudge([JudgeUnavailable("down")]),
    )

    assert (outcome.status, outcome.score) == (Status.ERROR, None)
    assert outcome.reason == "JudgeUnavailable: down"


def test_confidence_is_asked_for_only_when_it_matters() -> None:
    plain, asking = ScriptedJudge([row(1)]), ScriptedJudge([row(1, confidence=1)])

    score(metric(), first=plain)
    score(cascade(minConfidence=0.5), first=asking, strong=ScriptedJudge([]))

    assert "confidence" not in plain.requests[0].prompt
    assert "confidence" in asking.requests[0].prompt
    assert "confidence" in json.dumps(asking.requests[0].answer_schema)


# -- evidence --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("quote", "found"),
    [
        ("arrives on Friday", True),
        ("ARRIVES  on\nfriday", True),
        ('"It arrives on Friday"', True),
        ("It arrives ... by courier", True),
        ("It arrives on Monday", False),
        ("...", False),
    ],
)
def test_a_quote_that_is_not_in_the_trace_is_flagged(quote: str, found: bool) -> None:
    judge = ScriptedJudge([row(1, "because", evidence=quote)])

    outcome = score(metric(evidence="flag"), first=judge)

    verdict = outcome.turns[0].rubric_scores[0]
    assert outcome.score == 1
    assert (verdict.evidence, verdict.evidence_found) == (quote, found)
    assert ("evidence not found" in outcome.turns[0].reason) is not found
    assert '"evidence"' in judge.requests[0].prompt


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (row(1, evidence="on Friday"), None),
        (row(1, evidence="on Monday"), "evidence of rubric 1 not found: 'on Monday'"),
        (row(1), "rubric 1 is met without evidence"),
        (row(0), None),
        (row(0, evidence="on Monday"), "evidence of rubric 1 not found"),
    ],
)
def test_where_evidence_is_required_an_invented_quote_is_no_verdict(
    answer: str, error: str | None
) -> None:
    outcome = score(metric(evidence="require"), first=ScriptedJudge([answer]))

    assert (outcome.status is Status.ERROR) is (error is not None)
    assert (error or "") in outcome.reason


def test_without_being_asked_for_quotes_are_left_alone() -> None:
    judge = ScriptedJudge([row(1, "because", evidence="made up")])

    outcome = score(metric(), first=judge)

    assert outcome.turns[0].reason == "because"
    assert outcome.turns[0].rubric_scores[0].evidence_found is None
    assert "evidence" not in json.dumps(judge.requests[0].answer_schema)


# -- budget ----------------------------------------------------------------------------------------


def test_a_case_that_the_budget_does_not_cover_has_no_score_but_keeps_what_was_paid_for() -> None:
    turns = [make_turn(f"t-{place}") for place in range(3)]
    judge = ScriptedJudge([row(1), BudgetSpentError("budget spent: 1 of 1 calls")])

    outcome = score(metric(), make_case(turns=turns), first=judge)

    assert (outcome.status, outcome.score) == (Status.NOT_EVALUATED, None)
    assert outcome.reason == "budget spent: 1 of 1 calls"
    assert [turn.status for turn in outcome.turns] == [
        Status.PASSED, Status.NOT_EVALUATED, Status.NOT_EVALUATED
    ]  # fmt: skip
    assert outcome.turns[2].reason == "judge not called: budget spent: 1 of 1 calls"
    assert len(judge.requests) == 2


# -- what contradicts itself -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"cascade": {}}, "cascade.judgeModel is missing"),
        ({"cascade": {"judgeModel": {}, "margin": 2}}, "go from 0 to 1"),
        ({"evidence": "perhaps"}, "expected flag or require"),
        ({"evidence": "flag", "name": "llm_final_response"}, "ask rubrics"),
        ({"panel": [{"numSamples": 0}]}, "numSamples is 0"),
    ],
)
def test_a_criterion_that_makes_no_sense_is_refused_when_it_is_built(
    given: dict[str, Any], says: str
) -> None:
    with pytest.raises(MetricError, match=says):
        CaseScorer([metric(**given)])


def test_an_average_cannot_stop_early() -> None:
    template = {
        "prompt": "{{a}}",
        "responseScorerName": "boolean",
        "sampleAggregatorName": "average",
        "variableBindings": [
            {"templateVariable": "a", "source": {"scope": "actual", "field": "finalResponse"}}
        ],
    }
    one = metric(name="llm_judge_template", earlyStop=True, template=template)

    with pytest.raises(MetricError, match="earlyStop"):
        CaseScorer([one])


def test_judges_have_keys_of_their_own_for_samples_of_one_question() -> None:
    judge = ScriptedJudge(lambda request: row(1))

    score(metric(2, **PANEL), first=judge, second=judge, third=judge)

    assert [request.sample for request in judge.requests] == list(range(6))
    assert {request.version for request in judge.requests} == {"1.1"}


def test_a_text_that_no_database_takes_is_mended() -> None:
    answer = "reasoning: \ud800!\nis_the_agent_response_valid: valid"
    case = {**QUESTION, "conversation": [make_turn(answer="On Friday.")]}

    outcome = score(metric(name="llm_final_response"), case, first=ScriptedJudge([answer]))

    assert outcome.turns[0].reason == "?!"


class _Splitting:
    """Splits an answer into sentences and labels them, at a price."""

    def answer(self, request: JudgeRequest) -> JudgeReply:
        if "<sentence>" in request.prompt:
            return JudgeReply("<sentence>It arrives on Friday, by courier.</sentence>", "m", 5, 5)
        raise JudgeError("none")


def test_what_is_asked_beforehand_is_accounted_for() -> None:
    outcome = score(metric(name="llm_hallucinations"), first=_Splitting())

    assert outcome.status is Status.ERROR
    (beforehand,) = outcome.turns[0].beforehand
    assert (beforehand.sample, beforehand.model, beforehand.input_tokens) == (-1, "m", 5)
