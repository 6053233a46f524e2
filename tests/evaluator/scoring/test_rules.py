"""Deterministic rules: each type, weights, missing evidence, and mistakes reported at the start."""

from typing import Any

import pytest

from evaltap.evaluator import CaseScorer
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.evaluators.rules import compile_rules
from evaltap.evaluator.scoring.scorer import MetricOutcome
from evaltap.schemas.formats.criteria import Rule
from evaltap.schemas.formats.metric import EvalMetric
from support.builders.cases import make_case, make_turn


def metric(*rules: dict[str, Any], threshold: float = 0.5, target: str = "") -> EvalMetric:
    numbered = [{"id": f"r{place}", **rule} for place, rule in enumerate(rules)]
    return EvalMetric.model_validate(
        {
            "metricName": "rule_avg_score",
            "threshold": threshold,
            "criterion": {"rules": {"target": target, "rules": numbered}},
        }
    )


def score(one: EvalMetric, case: dict[str, Any]) -> MetricOutcome:
    return CaseScorer([one]).score(case).metrics[0]


@pytest.mark.parametrize(
    ("rule", "text", "value"),
    [
        ({"type": "exact", "value": "Yes"}, "Yes", 1),
        ({"type": "exact", "value": "Yes"}, "yes", 0),
        ({"type": "exact", "value": "Yes", "caseInsensitive": True}, "yES", 1),
        ({"type": "exact", "value": ""}, "", 1),
        ({"type": "contains", "values": ["a", "z"]}, "abc", 1),
        ({"type": "contains", "values": ["a", "z"], "mode": "all"}, "abc", 0),
        ({"type": "contains", "values": ["a", "z"], "mode": "fraction"}, "abc", 0.5),
        ({"type": "contains", "values": ["SORRY"], "caseInsensitive": True}, "so sorry", 1),
        ({"type": "contains", "values": ["sorry"], "negate": True}, "so sorry", 0),
        ({"type": "contains", "values": ["sorry"], "negate": True}, "done", 1),
        ({"type": "regex", "value": r"A-\d+"}, "order A-100.", 1),
        ({"type": "regex", "value": r"^A-\d+$"}, "order A-100.", 0),
        ({"type": "regex", "value": r"\D", "caseInsensitive": True}, "7", 0),
        ({"type": "length", "max": 3}, "abcd", 0),
        ({"type": "length", "min": 2, "max": 4}, "你好", 1),
        ({"type": "json"}, ' {"a": 1}\n', 1),
        ({"type": "json"}, "{'a': 1}", 0),
        ({"type": "json"}, "\u00a0{}", 0),
        ({"type": "json", "schema": {"required": ["b"]}}, '{"a": 1}', 0),
        ({"type": "json", "schema": {"required": ["a"]}}, '{"a": 1}', 1),
        ({"type": "keywords", "values": ["total", "next week"]}, "total: 5, next  week", 1),
        ({"type": "keywords", "values": ["total", "tot"]}, "the total", 0.5),
        ({"type": "keywords", "values": ["退款", "30", "Python"]}, "在30天内用Pythons退款", 2 / 3),
        ({"type": "keywords", "values": ["दिन"]}, "अच्छा दिन।", 1),
        ({"type": "keywords", "values": ["दिन"]}, "दान करें", 0),
        ({"type": "keywords", "values": ["caf\u00e9", "cafe"]}, "Das cafe\u0301", 1 / 2),
    ],
)
def test_each_type_of_rule(rule: dict[str, Any], text: str, value: float) -> None:
    outcome = score(metric(rule), make_case(turns=[make_turn(answer=text)]))

    assert outcome.score == value
    assert [row.id for row in outcome.turns[0].rubric_scores] == ["r0"]
    assert outcome.turns[0].rubric_scores[0].reason


def test_the_score_is_the_weighted_mean_and_the_reason_names_broken_rules() -> None:
    weighed = metric(
        {"type": "contains", "values": ["done"], "weight": 3},
        {"type": "regex", "value": "never"},
        {"type": "length", "max": 1, "weight": 0},
    )
    outcome = score(weighed, make_case())

    assert outcome.score == 0.75
    assert outcome.status is Status.PASSED
    assert outcome.reason.startswith("r1: does not match 'never'; r2: length")


def test_weights_that_make_up_a_threshold_reach_it() -> None:
    # The binary fractions 0.7 + 0.1 are a little less than 0.8.
    weighed = metric(
        {"type": "contains", "values": ["done"], "weight": 0.7},
        {"type": "length", "max": 99, "weight": 0.1},
        {"type": "regex", "value": "never", "weight": 0.2},
    )

    assert score(weighed, make_case()).score == 0.8


@pytest.mark.parametrize("kind", ["contains", "keywords"])
def test_a_negated_rule_names_what_it_found_not_what_is_missing(kind: str) -> None:
    rude = metric({"type": kind, "values": ["idiot", "stupid"], "negate": True})

    reason = score(rude, make_case(turns=[make_turn(answer="A stupid question")])).reason

    assert reason.endswith(" 1 of 2: 'stupid'")


def test_the_target_may_be_the_users_message() -> None:
    asked = metric({"type": "contains", "values": ["A-100"]}, target="userContent")

    assert score(asked, make_case()).score == 1


@pytest.mark.parametrize(
    ("turn", "says"),
    [
        (make_turn(answer=None), "finalResponse is absent"),
        (make_turn(capture={"finalResponse": "redacted"}), "finalResponse is redacted"),
        (make_turn(answer=None, capture={"finalResponse": "missing"}), "finalResponse is missing"),
    ],
)
def test_missing_text_is_not_evaluated(turn: dict[str, Any], says: str) -> None:
    outcome = score(metric({"type": "length", "min": 0}), make_case(turns=[turn]))

    assert (outcome.status, outcome.score) == (Status.NOT_EVALUATED, None)
    assert says in outcome.reason


@pytest.mark.parametrize(
    ("rules", "says"),
    [
        ([], "no rules"),
        ([{"id": "", "type": "json"}], "blank id"),
        ([{"id": "a", "type": "json"}, {"id": "a", "type": "json"}], "id 'a' again"),
        ([{"id": "a", "type": "equals"}], "type 'equals'; expected one of exact, contains"),
        ([{"id": "a", "type": "exact"}], "value is missing"),
        ([{"id": "a", "type": "contains"}], "values is empty"),
        ([{"id": "a", "type": "contains", "values": ["x"], "mode": "most"}], "mode is 'most'"),
        ([{"id": "a", "type": "contains", "values": ["x", ""]}], "has an empty text"),
        ([{"id": "a", "type": "regex", "value": ""}], "value is empty, and found in every text"),
        ([{"id": "a", "type": "regex", "value": "("}], "missing"),
        ([{"id": "a", "type": "length"}], "neither min nor max"),
        ([{"id": "a", "type": "length", "min": 3, "max": 2}], "expected 0 <= min <= max"),
        ([{"id": "a", "type": "json", "schema": {"type": 1}}], "compile json schema"),
        ([{"id": "a", "type": "keywords", "values": ["!"]}], "no letters or digits"),
        ([{"id": "a", "type": "json", "weight": -1}], "weight -1"),
        ([{"id": "a", "type": "json", "weight": 0}], "all rules have weight 0"),
    ],
)
def test_a_rule_that_makes_no_sense_is_refused(rules: list[dict[str, Any]], says: str) -> None:
    with pytest.raises(MetricError) as caught:
        compile_rules([Rule.model_validate(rule) for rule in rules])

    assert says in str(caught.value)


def test_an_unknown_target_is_refused() -> None:
    with pytest.raises(MetricError, match=r"metric 'rule_avg_score': rules\.target is 'tools'"):
        CaseScorer([metric({"type": "json"}, target="tools")])
