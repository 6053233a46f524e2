"""Gates over several dimensions, and the loop in which an agent revises its answer."""

import pytest

from evaltap.evaluator import Func, Gate, Registry, ScriptedJudge, Turn
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    MetricScore,
    Status,
    TurnScore,
)
from evaltap.evaluator.scoring.contract.judge import JudgeUnavailable
from evaltap.evaluator.scoring.gates.gate import GateResult, variable_of
from evaltap.schemas.errors import ConfigurationError
from support.builders.cases import RESPONSE, TRAJECTORY, make_case, make_turn
from support.builders.gates import CHANGES, CORRECT, GOOD, QUALITY, SAFE, case, gate, grades, rule


def test_a_case_passes_when_every_dimension_does() -> None:
    result = gate(
        CORRECT, QUALITY, SAFE, CHANGES, judge=ScriptedJudge([grades(4, "pass")])
    ).evaluate(case())

    assert (result.passed, result.status, result.feedback) == (True, "passed", "")
    assert [(one.name, one.score) for one in result.dimensions] == [
        ("correctness", 1), ("quality", 0.875), ("safety", 1), ("change safety", 1)
    ]  # fmt: skip


def test_a_dimension_below_its_threshold_fails_the_gate_and_says_why() -> None:
    result = gate(CORRECT, SAFE).evaluate(case("A-100 comes tomorrow."))

    assert (result.passed, result.status) == (False, "failed")
    correctness, safety = result.dimensions
    assert (correctness.score, correctness.status, safety.status) == (0.5, "failed", "passed")
    assert result.feedback == (
        "The answer was not accepted.\n"
        "- correctness: 0.50, needed 0.80. names day: 1: contains 0 of 1; missing: 'Monday'"
    )


def test_a_dimension_is_the_mean_of_its_metrics_whatever_their_own_thresholds() -> None:
    half = CORRECT | {"threshold": 0.5}

    assert gate(half).evaluate(case("A-100 comes tomorrow.")).passed


@pytest.mark.parametrize(
    ("judge", "told"),
    [
        (None, "no judge service was given"),
        (ScriptedJudge([JudgeUnavailable("out of reach")]), "out of reach"),
        (ScriptedJudge([grades(6, "pass")]), "6 is not a whole number from 1 to 5"),
    ],
)
def test_without_a_verdict_the_gate_is_incomplete_and_does_not_pass(
    judge: ScriptedJudge | None, told: str
) -> None:
    result = gate(CORRECT, QUALITY, judge=judge).evaluate(case())

    assert (result.passed, result.status) == (False, "incomplete")
    assert result.dimensions[1].score is None
    assert "- quality: could not be checked. quality criteria: " in result.feedback
    assert told in result.feedback


def test_evidence_that_was_not_recorded_leaves_its_dimension_open_and_the_others_judged() -> None:
    result = gate(CORRECT, CHANGES).evaluate(case("no", capture={"tools": "missing"}))

    assert [one.status for one in result.dimensions] == ["failed", "not_evaluated"]
    assert result.status == "failed"
    assert "tools is missing" in result.dimensions[1].reason


def test_a_turn_whose_answer_was_not_recorded_keeps_the_dimension_open() -> None:
    seen, hidden = (
        make_turn(answer=GOOD),
        make_turn(answer=None, capture={"finalResponse": "redacted"}),
    )

    result = gate(CORRECT, CHANGES).evaluate(make_case(turns=[seen, hidden]))

    assert [one.status for one in result.dimensions] == ["not_evaluated", "passed"]
    assert (result.status, result.dimensions[0].score) == ("incomplete", None)
    assert "turn 2: evidence missing: finalResponse is redacted" in result.feedback
    hidden["finalResponse"] = seen["finalResponse"] = {"role": "assistant", "content": "no"}
    assert gate(CORRECT).evaluate(make_case(turns=[seen, hidden])).status == "failed"


def test_a_dimension_that_a_case_expects_nothing_of_does_not_keep_the_gate_open() -> None:
    calls = {"name": "calls", "threshold": 1.0, "metrics": [TRAJECTORY]}
    answer = {"name": "answer", "threshold": 1.0, "metrics": [RESPONSE]}

    def result(**marks: str) -> GateResult:
        expected = make_turn(capture=marks)
        return gate(calls, answer).evaluate(make_case(conversation=[expected]))

    assert result(tools="missing").passed
    assert [one.applies for one in result(tools="missing").dimensions] == [False, True]
    assert result(tools="redacted").status == "incomplete"
    assert result(tools="missing", finalResponse="missing").status == "incomplete"


def test_a_turn_with_nothing_to_score_does_not_keep_the_gate_open() -> None:
    metric = {"metricName": "user_feedback", "threshold": 1, "criterion": {"feedback": {}}}
    liked = {"name": "users", "threshold": 1.0, "metrics": [metric]}
    turns = [make_turn(), make_turn(feedback=[{"name": "thumbs", "positive": True}])]

    assert gate(liked).evaluate(make_case(turns=turns)).passed


def test_feedback_shows_as_many_digits_as_tell_a_score_from_its_threshold() -> None:
    rules = rule("r", "Monday", weight=699)
    rules["criterion"]["rules"]["rules"].append(
        {"id": "2", "type": "contains", "values": ["Tuesday"], "weight": 301}
    )
    near = {"name": "near", "threshold": 0.7, "metrics": [rules]}

    assert "- near: 0.699, needed 0.70." in gate(near).evaluate(case()).feedback


def test_a_mean_reaches_the_threshold_that_it_equals() -> None:
    half = {"name": "half", "threshold": 0.4, "metrics": [{"metricName": n} for n in ("a", "b")]}
    scores = [
        Func(lambda turn, expected: 0.1, name="a"),
        Func(lambda turn, expected: 0.7, name="b"),
    ]

    assert (
        Gate({"dimensions": [half]}, registry=Registry().extended(scores)).evaluate(case()).passed
    )


def test_a_case_that_cannot_be_laid_out_passes_no_gate() -> None:
    result = gate(CORRECT).evaluate(case() | {"evalMode": "live"})

    assert (result.status, result.dimensions[0].status) == ("incomplete", "error")
    assert "only supported in trace mode" in result.feedback


def test_evaluators_of_ones_own_count_like_any_other() -> None:
    def short(turn: Turn, expected: Turn) -> bool:
        return len(turn.final_text or "") < 10

    own = {"name": "size", "threshold": 1.0, "metrics": [{"metricName": "short", "threshold": 1}]}
    checked = Gate({"dimensions": [own]}, registry=Registry().extended([Func(short)]))

    assert not checked.evaluate(case()).passed


@pytest.mark.parametrize(
    ("status", "score", "found"),
    [
        (Status.PASSED, 80.0, ("passed", 0.8)),
        (Status.PASSED, 50.0, ("failed", 0.5)),
        (Status.PASSED, 101.0, ("incomplete", None)),
        (Status.PASSED, float("nan"), ("incomplete", None)),
        (Status.NOT_EVALUATED, 0.9, ("incomplete", None)),
        (Status.ERROR, 0.9, ("incomplete", None)),
        (Status.NOT_EVALUATED, None, ("incomplete", None)),
    ],
)
def test_scores_of_any_evaluator_count_from_0_to_1_or_not_at_all(
    status: Status, score: float | None, found: tuple[str, float | None]
) -> None:
    class Own:
        name, version = "own", "1"

        def evaluate(self, context: EvaluationContext) -> MetricScore:
            return MetricScore(status, score, "", (TurnScore(status, score),))

    one = {"name": "x", "threshold": 0.7, "metrics": [{"metricName": "own", "threshold": 0.7}]}

    result = Gate({"dimensions": [one]}, registry=Registry().extended([Own()])).evaluate(case())

    assert (result.status, result.dimensions[0].score) == found


def test_the_environment_overrides_a_threshold() -> None:
    half = case("A-100 comes tomorrow.")

    assert not gate(CORRECT).evaluate(half).passed
    assert gate(CORRECT, EVALTAP_GATE_CORRECTNESS="0.5").evaluate(half).passed
    assert variable_of("change safety") == "EVALTAP_GATE_CHANGE_SAFETY"
    open_threshold = {key: value for key, value in CORRECT.items() if key != "threshold"}
    assert gate(open_threshold, EVALTAP_GATE_CORRECTNESS="0.5").thresholds == {"correctness": 0.5}


def test_names_in_any_script_share_a_variable_only_as_long_as_it_is_not_set() -> None:
    two = CORRECT | {"name": "质量"}, SAFE | {"name": "安全"}

    assert gate(*two).evaluate(case()).passed
    with pytest.raises(ConfigurationError, match="EVALTAP_GATE___ belongs to several dimensions"):
        gate(*two, EVALTAP_GATE___="0.5")


@pytest.mark.parametrize("name", ["CORECTNESS", "CORRECTNES", "correctness", "CORRECTNESS_"])
def test_a_variable_that_misspells_a_dimension_is_refused(name: str) -> None:
    meant = "did you mean 'EVALTAP_GATE_CORRECTNESS'"

    with pytest.raises(ConfigurationError, match=meant):
        gate(CORRECT, judge=None, **{f"EVALTAP_GATE_{name}": "0.9"})
