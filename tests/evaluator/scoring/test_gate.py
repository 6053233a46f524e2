"""Gates over several dimensions, and the loop in which an agent revises its answer."""

import pytest

from evaltap.evaluator import (
    Func,
    Gate,
    Registry,
    ScriptedJudge,
    Turn,
)
from evaltap.evaluator.scoring.contract.judge import JudgeUnavailable
from evaltap.evaluator.scoring.gates.gate import variable_of
from evaltap.schemas.errors import ConfigurationError
from support.builders.gates import CHANGES, CORRECT, QUALITY, SAFE, case, gate, grades


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


def test_the_environment_overrides_a_threshold() -> None:
    half = case("A-100 comes tomorrow.")

    assert not gate(CORRECT).evaluate(half).passed
    assert gate(CORRECT, EVALTAP_GATE_CORRECTNESS="0.5").evaluate(half).passed
    assert variable_of("change safety") == "EVALTAP_GATE_CHANGE_SAFETY"
    open_threshold = {key: value for key, value in CORRECT.items() if key != "threshold"}
    assert gate(open_threshold, EVALTAP_GATE_CORRECTNESS="0.5").thresholds == {"correctness": 0.5}


@pytest.mark.parametrize("name", ["CORECTNESS", "CORRECTNES", "correctness", "CORRECTNESS_"])
def test_a_variable_that_misspells_a_dimension_is_refused(name: str) -> None:
    meant = "did you mean 'EVALTAP_GATE_CORRECTNESS'"

    with pytest.raises(ConfigurationError, match=meant):
        gate(CORRECT, judge=None, **{f"EVALTAP_GATE_{name}": "0.9"})
