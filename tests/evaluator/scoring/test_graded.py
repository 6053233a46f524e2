"""Criteria with scales: the value of each answer, and no score for an answer outside its scale."""

import json
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator import CaseScorer, MetricError, MetricOutcome, ScriptedJudge, Services
from evaltap.evaluator.scoring.contract.context import Status
from evaltap.evaluator.scoring.contract.judge import JudgeInvalid
from evaltap.evaluator.scoring.evaluators.judged.answers import read_rubrics, read_single_score
from evaltap.evaluator.scoring.evaluators.judged.graded import (
    compile_criteria,
    compile_scale,
    read_grades,
)
from evaltap.schemas import EvalMetric
from evaltap.schemas.formats.criteria import GradedCriterion
from support.builders.cases import make_case, make_turn

LABELS = {"ideal": 1.0, "usable": 0.4, "wrong": 0.0}


def metric(*criteria: dict[str, Any], threshold: float = 0.5, **grading: Any) -> EvalMetric:
    return EvalMetric.model_validate(
        {
            "metricName": "llm_criteria",
            "threshold": threshold,
            "criterion": {
                "llmJudge": {"judgeModel": {"modelName": "m"}},
                "grading": {"criteria": [{"text": "Is it right?", **one} for one in criteria]}
                | grading,
            },
        }
    )


def answer(**values: Any) -> str:
    grades = {name: {"value": value, "reason": f"why {name}"} for name, value in values.items()}
    return orjson.dumps({"grades": grades}).decode()


def score(one: EvalMetric, reply: str, case: dict[str, Any] | None = None) -> MetricOutcome:
    services = Services(judge=lambda _: ScriptedJudge([reply]))
    return CaseScorer([one], services=services).score(case or make_case()).metrics[0]


def test_a_key_that_nothing_reads_is_refused() -> None:
    mistyped = metric({"id": "a", "scale": "numeric", "maximum": 100})

    with pytest.raises(
        MetricError,
        match=r"grading\.criteria\[0\] has the unknown key 'maximum'; did you mean 'max'",
    ):
        CaseScorer([mistyped])


@pytest.mark.parametrize(
    ("scale", "value", "worth"),
    [
        ({}, 1, 1),
        ({"scale": "binary"}, False, 0),
        ({"scale": "likert5"}, 1, 0),
        ({"scale": "likert5"}, 4, 0.75),
        ({"scale": "likert5"}, 5.0, 1),
        ({"scale": "numeric"}, 7, 0.7),
        ({"scale": "numeric", "max": 1}, 0.25, 0.25),
        ({"scale": "numeric", "min": -1, "max": 1}, 0, 0.5),
        ({"scale": "numeric", "min": 0, "max": 100}, 65, 0.65),
        ({"scale": "pass_fail"}, "PASS", 1),
        ({"scale": "pass_fail"}, "fail", 0),
        ({"scale": "pass/fail"}, True, 1),
        ({"scale": "pass/fail"}, "False", 0),
        ({"scale": "binary"}, "true", 1),
        ({"scale": "binary"}, "Fail", 0),
        ({"scale": "binary"}, "1", 1),
        ({"scale": "binary"}, 0.0, 0),
        ({"scale": "binary"}, "No", 0),
        ({"scale": "pass_fail"}, "yes", 1),
        ({"scale": "pass_fail"}, 0, 0),
        ({"scale": "custom", "labels": LABELS}, " usable ", 0.4),
    ],
)
def test_an_answer_is_worth_its_place_on_the_scale(
    scale: dict[str, Any], value: object, worth: float
) -> None:
    found = score(metric({"id": "a", **scale}), answer(a=value))

    assert found.score == pytest.approx(worth)
    assert found.turns[0].rubric_scores[0].reason == f"{value}: why a"


@pytest.mark.parametrize(
    ("scale", "value"),
    [
        ({"scale": "binary"}, 0.5),
        ({"scale": "binary"}, "2"),
        ({"scale": "likert5"}, 0),
        ({"scale": "likert5"}, 6),
        ({"scale": "likert5"}, 3.5),
        ({"scale": "likert5"}, True),
        ({"scale": "numeric"}, 10.001),
        ({"scale": "numeric"}, -1),
        ({"scale": "numeric"}, "7"),
        ({"scale": "numeric"}, None),
        ({"scale": "numeric"}, True),
        ({"scale": "pass_fail"}, "maybe"),
        ({"scale": "custom", "labels": LABELS}, "Ideal"),
        ({"scale": "custom", "labels": LABELS}, ["ideal"]),
    ],
)
def test_an_answer_off_the_scale_is_an_error_and_no_score(
    scale: dict[str, Any], value: object
) -> None:
    found = score(metric({"id": "a", **scale}), answer(a=value))

    assert (found.status, found.score) == (Status.ERROR, None)
    assert "JudgeInvalid: grade of a" in found.reason


def test_keys_are_read_in_upper_and_lower_case() -> None:
    grades = '{"Grades": {"a": {"Value": true, "REASON": "so"}}}'
    rubrics = '{"RubricScores": [{"ID": "1", "Score": 1, "Reason": "so"}]}'

    assert score(metric({"id": "a"}), grades).score == 1
    assert read_rubrics(rubrics, ["1"]).score == 1
    assert read_single_score('{"Score": 1, "Reason": "so"}').score == 1


@pytest.mark.parametrize(
    ("reply", "told"),
    [
        ("7", "expected an object with `grades`"),
        ("no", "unmarshal response json"),
        ('{"grades": {"a": {"value": NaN, "reason": ""}, "b": {"value": 1, "reason": ""}}}', "NaN"),
        (answer(a=1), "graded a; expected a, b"),
        (answer(a=1, b=1, c=1), "graded a, b, c; expected a, b"),
        ('{"grades": {"a": 1, "b": 1}}', "expected an object with `value`"),
        ('{"grades": {"a": {"value": 1}, "b": {"value": 1}}}', "reason is required"),
        (
            '{"grades": {"a": {"value": 1, "value": 0, "reason": ""}, "b": {"value": 1, "reason": ""}}}',
            "the same key twice",
        ),
    ],
)
def test_an_answer_that_does_not_grade_each_criterion_once_is_an_error(
    reply: str, told: str
) -> None:
    found = score(metric({"id": "a"}, {"id": "b"}), reply)

    assert (found.status, found.score) == (Status.ERROR, None)
    assert told in found.reason


def test_criteria_are_weighted_into_one_score() -> None:
    criteria = (
        {"id": "right", "scale": "likert5", "weight": 3},
        {"id": "kind", "scale": "pass_fail"},
        {"id": "noted", "scale": "numeric", "weight": 0},
    )
    found = score(metric(*criteria), "```json\n" + answer(right=3, kind="pass", noted=0) + "\n```")

    assert found.score == pytest.approx((3 * 0.5 + 1) / 4)
    assert [row.score for row in found.turns[0].rubric_scores] == [0.5, 1, 0]


def test_weights_that_make_up_a_threshold_reach_it() -> None:
    criteria = [{"id": one, "weight": w} for one, w in (("a", 0.1), ("b", 0.2), ("c", 0.7))]

    assert score(metric(*criteria), answer(a=1, b=0, c=1)).score == 0.8


def test_grades_that_make_up_a_threshold_reach_it() -> None:
    criteria = [{"id": one, "scale": "numeric"} for one in "ab"]

    assert score(metric(*criteria), answer(a=1, b=7)).score == 0.4
    assert score(metric({"id": "a", "scale": "numeric", "max": 3}), answer(a=1)).score == 1 / 3


def test_answers_on_a_scale_in_your_own_words_are_kept_and_not_counted() -> None:
    school = {"id": "mark", "scale": "a letter from A to F", "weight": 5}
    judge = ScriptedJudge([answer(right=1, mark="B")])

    case = make_case(turns=[make_turn()])
    services = Services(judge=lambda _: judge)
    outcome = CaseScorer([metric({"id": "right"}, school)], services=services).score(case)
    found = outcome.metrics[0]

    assert "mark (a letter from A to F)" in judge.requests[0].prompt
    assert found.score == 1
    assert [row.id for row in found.turns[0].rubric_scores] == ["right"]
    assert "mark: B: " in found.reason
    with pytest.raises(MetricError, match="no criterion counts"):
        compile_criteria([GradedCriterion.model_validate(school | {"text": "x"})])


@pytest.mark.parametrize(("value", "status"), [(7, Status.PASSED), (6.9, Status.FAILED)])
def test_a_grade_from_0_to_10_passes_from_7(value: float, status: Status) -> None:
    criteria = [{"id": name, "scale": "numeric"} for name in "abc"]
    alone = score(metric(criteria[0], threshold=0.7), answer(a=value))
    mean = score(metric(*criteria, threshold=0.7), answer(**dict.fromkeys("abc", value)))

    assert alone.status is mean.status is status


def test_the_judge_sees_what_the_metric_shows_it_and_the_bounds_of_each_scale() -> None:
    judge = ScriptedJudge([answer(a=5)])
    case = make_case(conversation=[make_turn(answer="On Monday.")])
    shown = metric({"id": "a", "scale": "likert5"}, withReference=True, withTools=True)
    CaseScorer([shown], services=Services(judge=lambda _: judge)).score(case)

    request = judge.requests[0]
    assert all(text in request.prompt for text in ("On Monday.", "get_order", "A-100", "from 1 "))
    schema: Any = request.answer_schema
    assert schema["properties"]["grades"]["properties"]["a"]["properties"]["value"] == {
        "type": "integer", "minimum": 1, "maximum": 5
    }  # fmt: skip


@pytest.mark.parametrize(
    ("case", "grading", "told"),
    [
        (make_case(turns=[make_turn(capture={"finalResponse": "redacted"})]), {}, "is redacted"),
        (make_case(), {"withReference": True}, "expected finalResponse is absent"),
        (make_case(turns=[make_turn(capture={"tools": "missing"})]), {"withTools": True}, "tools"),
    ],
)
def test_what_was_not_recorded_is_not_graded(
    case: dict[str, Any], grading: dict[str, Any], told: str
) -> None:
    found = score(metric({"id": "a"}, **grading), answer(a=1), case)

    assert (found.status, found.score) == (Status.NOT_EVALUATED, None)
    assert told in found.reason


@given(
    low=st.integers(-50, 50),
    width=st.integers(1, 100),
    share=st.floats(0, 1),
    other=st.floats(0, 1),
)
def test_numeric_answers_keep_their_order_and_stay_within_0_and_1(
    low: int, width: int, share: float, other: float
) -> None:
    scale = compile_scale(GradedCriterion(scale="numeric", min=low, max=low + width))
    one, two = (min(low + width * part, low + width) for part in sorted((share, other)))

    assert 0 <= scale.normalise(one) <= scale.normalise(two) <= 1
    for beyond in (low - 1, low + width + 1):
        with pytest.raises(ValueError, match="not a number from"):
            scale.normalise(beyond)


@pytest.mark.parametrize(
    ("criteria", "told"),
    [
        ([], "is empty"),
        ([{"id": "", "text": "x"}], "the id ''"),
        ([{"id": "a", "text": "x"}, {"id": "a ", "text": "x"}], "the id 'a'"),
        ([{"id": "a"}], "has no text"),
        ([{"id": "a", "text": "x", "scale": "likert7"}], "scale is 'likert7'; did you mean 'likert"),
        ([{"id": "a", "text": "x", "scale": "numeric", "min": 3.0, "max": 3.0}], "expected min < max"),
        ([{"id": "a", "text": "x", "min": 3.0}], "min and max are for scale numeric"),
        ([{"id": "a", "text": "x", "scale": "custom", "labels": {"a": 1.0}}], "two or more"),
        ([{"id": "a", "text": "x", "scale": "custom", "labels": {"a": 1.0, "b": 2.0}}], "worth 2"),
        ([{"id": "a", "text": "x", "labels": {"a": 1.0}}], "labels are for scale custom"),
        ([{"id": "a", "text": "x", "weight": -1.0}], "weight -1"),
        ([{"id": "a", "text": "x", "weight": 0.0}], "no criterion counts"),
    ],
)  # fmt: skip
def test_a_criterion_that_makes_no_sense_is_refused(
    criteria: list[dict[str, Any]], told: str
) -> None:
    with pytest.raises(MetricError) as caught:
        compile_criteria([GradedCriterion.model_validate(one) for one in criteria])

    assert told in str(caught.value)


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["grades", "a", "b", "value", "reason", "x"]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@given(
    st.text(max_size=60)
    | JSON.map(json.dumps)
    | st.fixed_dictionaries(
        {name: st.fixed_dictionaries({"value": JSON, "reason": JSON}) for name in ("a", "b")}
    ).map(lambda grades: json.dumps({"grades": grades}))
)
def test_whatever_a_judge_answers_is_a_score_within_0_and_1_or_none(text: str) -> None:
    criteria = compile_criteria(
        [
            GradedCriterion(id="a", text="x", scale="numeric", max=5.0),
            GradedCriterion(id="b", text="x", scale="custom", labels=LABELS),
        ]
    )

    try:
        verdict = read_grades(text, criteria)
    except JudgeInvalid:
        return
    assert 0 <= verdict.score <= 1
    assert [row.id for row in verdict.rubric_scores] == ["a", "b"]


def test_an_answer_nested_without_end_is_no_verdict() -> None:
    for depth in (900, 1010, 5000, 200_000):
        with pytest.raises(JudgeInvalid):
            read_grades(
                "[" * depth + "]" * depth, compile_criteria([GradedCriterion(id="a", text="x")])
            )
