"""The trajectory suite as metrics: scores, conventions, references, and defects of other tools."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator import CaseScorer, MetricOutcome, Registry
from evaltap.schemas import EvalMetric

Call = dict[str, Any]
REGISTRY = Registry()
USER = {"role": "user", "content": "q"}


def call(name: str, arguments: object = None, **more: Any) -> Call:
    return {"name": name, "arguments": {} if arguments is None else arguments, **more}


def calls(names: str) -> list[Call]:
    return [call(name) for name in names]


def outcome(
    name: str,
    actual: Sequence[Call | None] | str,
    expected: Sequence[Call | None] | str | None = "",
    *,
    threshold: float = 1,
    turn: dict[str, Any] | None = None,
    expected_turn: dict[str, Any] | None = None,
    **criterion: Any,
) -> MetricOutcome:
    """Score one turn; a text stands for calls named by its letters."""
    made = calls(actual) if isinstance(actual, str) else list(actual)
    case: dict[str, Any] = {
        "evalId": "c",
        "evalMode": "trace",
        "actualConversation": [{"userContent": USER, "tools": made, **(turn or {})}],
        "sessionInput": {"appName": "a", "userId": "u"},
    }
    if expected is not None:
        wanted = calls(expected) if isinstance(expected, str) else list(expected)
        case["conversation"] = [{"userContent": USER, "tools": wanted, **(expected_turn or {})}]
    metric = EvalMetric.model_validate(
        {"metricName": name, "threshold": threshold, "criterion": {"trajectory": criterion}}
    )
    return CaseScorer([metric], registry=REGISTRY).score(case).metrics[0]


def score(name: str, actual: Any, expected: Any = "", **options: Any) -> float | None:
    return outcome(name, actual, expected, **options).score


WHOLE = ("exact", "in_order", "any_order", "strict", "unordered", "subset", "superset")
GRADED = ("precision", "recall", "f1", "edit_similarity")


@pytest.mark.parametrize(
    ("actual", "expected", "holding"),
    [
        ("ab", "ab", "exact in_order any_order strict unordered subset superset"),
        ("ba", "ab", "any_order unordered subset superset"),
        ("axb", "ab", "in_order any_order superset"),
        ("a", "ab", "subset"),
        ("aa", "a", "in_order any_order superset"),
        ("a", "aa", "subset"),
        ("", "", "exact in_order any_order strict unordered subset superset"),
        ("a", "", "in_order any_order superset"),
        ("", "a", "subset"),
    ],
)
def test_which_names_match_which_trajectories(actual: str, expected: str, holding: str) -> None:
    held = [name for name in WHOLE if score(f"trajectory_{name}", actual, expected) == 1]

    assert held == holding.split()


@pytest.mark.parametrize("name", GRADED)
@pytest.mark.parametrize("ordered", [False, True])
def test_empty_sides_score_1_together_and_0_alone(name: str, ordered: bool) -> None:
    metric = f"trajectory_{name}"

    assert score(metric, "", "", ordered=ordered) == 1
    assert score(metric, "a", "", ordered=ordered) == 0
    assert score(metric, "", "a", ordered=ordered) == 0


@pytest.mark.parametrize(
    ("metric", "ordered", "expected"),
    [
        ("precision", False, 3 / 4),
        ("recall", False, 1),
        ("f1", False, 6 / 7),
        ("precision", True, 2 / 4),
        ("recall", True, 2 / 3),
        ("f1", True, 4 / 7),
    ],
)
def test_shares_in_any_order_and_in_order(metric: str, ordered: bool, expected: float) -> None:
    assert score(f"trajectory_{metric}", "bacx", "abc", ordered=ordered) == pytest.approx(expected)


def test_partial_credit_is_the_share_of_arguments() -> None:
    actual, expected = [call("a", {"x": 1, "y": 2})], [call("a", {"x": 1, "y": 3})]

    assert score("trajectory_f1", actual, expected) == 1 / 2
    weights = {"paths": [{"path": "x", "weight": 3}]}
    assert score("trajectory_f1", actual, expected, arguments=weights) == 3 / 4
    assert score("trajectory_f1", actual, expected, toolArguments={"a": {"mode": "ignore"}}) == 1
    assert (
        score("trajectory_f1", actual, expected, toolArguments={"b": {"mode": "ignore"}}) == 1 / 2
    )


def test_edit_similarity_tells_the_script() -> None:
    found = outcome("trajectory_edit_similarity", "axc", "abcd")

    assert found.score == 1 - 2 / 4
    assert "edit script: substitute b by x (1), delete d" in found.reason
    assert score("trajectory_edit_similarity", "ba", "ab", costs={"swap": 0.5}) == 3 / 4
    assert score("trajectory_edit_similarity", "ba", "ab") == 0
    assert score("trajectory_edit_similarity", "x", "a", costs={"substitute": 0.5}) == 1 / 2
    assert score("trajectory_edit_similarity", "abc", "", costs={"insert": 3}) == 0


def test_the_reason_shows_what_differs() -> None:
    actual = [call("c"), call("a", {"n": 1}), call("x"), call("b")]
    expected = [call("a", {"n": 2}), call("b"), call("c"), call("d")]

    reason = outcome("trajectory_exact", actual, expected).reason

    assert reason == "moved c; changed a (n: expected 2, found 1); extra x; missing d"


def test_a_match_leaves_no_reason() -> None:
    assert outcome("trajectory_exact", "ab", "ab").reason == ""


# -- which calls count -----------------------------------------------------------------------------


RETRIED = [
    call("a", {"n": 1}, error={"type": "E", "message": "no"}),
    call("a", {"n": 2}),
    call("b"),
]


def test_failed_attempts_are_left_out_and_counted() -> None:
    found = outcome("trajectory_exact", RETRIED, [call("a", {"n": 2}), call("b")])

    assert found.score == 1
    assert found.turns[0].reason == "1 failed call left out"
    expected = [call("a", {"n": 1}), call("a", {"n": 2}), call("b")]
    assert score("trajectory_exact", RETRIED, expected, attempts="all") == 1


def test_the_final_attempt_counts_even_when_it_failed() -> None:
    broken = {"type": "E", "message": "no"}
    actual = [call("a", {"n": 1}, error=broken), call("b"), call("a", {"n": 2}, error=broken)]
    expected = [call("b"), call("a", {"n": 2})]

    assert score("trajectory_exact", actual, expected, attempts="final") == 1
    assert score("trajectory_exact", actual, [call("b")]) == 1


def test_nested_agents_are_flattened_or_scored_each() -> None:
    actual = [call("a", agent="one"), call("b", agent="two"), call("x", agent="two")]
    expected = [call("a", agent="two"), call("b", agent="two")]

    assert score("trajectory_f1", actual, expected) == pytest.approx(4 / 5)
    found = outcome("trajectory_f1", actual, expected, agents="per_agent")
    assert found.score == pytest.approx((0 + 1 / 2) / 2)
    assert [row.id for row in found.turns[0].rubric_scores] == ["agent two", "agent one"]
    one_is_wrong = [call("a", agent="one"), call("c", agent="two")]
    wanted = [call("a", agent="one"), call("b", agent="two")]
    assert score("trajectory_exact", one_is_wrong, wanted, agents="per_agent") == 0


# -- references ------------------------------------------------------------------------------------


def test_the_best_of_several_references_counts_and_is_named() -> None:
    others = {"references": [{"tools": calls("xy")}, {"tools": calls("xz")}]}
    found = outcome("trajectory_f1", "xy", "ab", expected_turn=others)

    assert found.score == 1
    assert found.turns[0].reason == "reference 2 of 3 fits best"
    rows = [(row.id, row.score) for row in found.turns[0].rubric_scores]
    assert rows == [("reference 1", 0), ("reference 2", 1), ("reference 3", 0.5)]


def test_references_of_the_metric_need_no_expected_conversation() -> None:
    reference = [{"tools": calls("ab")}]

    assert score("trajectory_exact", "ab", None, references=reference) == 1


def test_a_case_without_references_is_not_evaluated() -> None:
    found = outcome("trajectory_exact", "ab", None)

    assert found.status == "not_evaluated"
    assert "no expected turn" in found.reason


@pytest.mark.parametrize(
    ("turn", "told"),
    [
        ({"capture": {"tools": "redacted"}}, "tools is redacted"),
        (
            {"tools": [call("a", capture={"arguments": "missing"})]},
            "arguments of tool a is missing",
        ),
    ],
)
def test_missing_evidence_is_not_a_zero(turn: dict[str, Any], told: str) -> None:
    found = outcome("trajectory_exact", "a", "a", turn=turn)
    expected = outcome("trajectory_exact", "a", "a", expected_turn=turn)

    assert found.status == expected.status == "not_evaluated"
    assert found.reason == f"evidence missing: {told}"
    assert expected.reason == f"evidence missing: expected {told}"


def test_arguments_that_are_not_compared_need_not_be_there() -> None:
    hidden = [call("a", capture={"arguments": "redacted"})]

    assert score("trajectory_exact", hidden, "a", arguments={"mode": "ignore"}) == 1


def test_partly_ordered_references() -> None:
    reference = [
        call("a", id="1"),
        call("b", id="2", after=["1"]),
        call("c", id="3", after=["1"]),
        call("o", id="4", optional=True),
    ]

    assert score("trajectory_partial_order", "acb", reference) == 1
    assert score("trajectory_partial_order", "bac", reference) == pytest.approx(2 / 3)
    broken = outcome("trajectory_partial_order", "a", [call("a", after=["9"])])
    assert broken.status == "error"
    assert "is after '9'" in broken.reason


def test_arguments_by_tool() -> None:
    actual = [call("a", {"x": 1}), call("a", {"x": 2}), call("b", {"y": 1, "z": 1})]
    expected = [call("a", {"x": 1}), call("a", {"x": 9}), call("b", {"y": 1, "z": 2}), call("c")]

    found = outcome("trajectory_args_score", actual, expected)

    assert found.score == pytest.approx((1 + 0 + 1 / 2) / 3)
    assert [(row.id, row.score) for row in found.turns[0].rubric_scores] == [("a", 0.5), ("b", 0.5)]
    assert outcome("trajectory_args_score", "x", "a").status == "not_evaluated"


def test_results_of_paired_calls() -> None:
    actual = [call("a", {"n": 2}, result={"ok": True, "v": 1}), call("a", {"n": 1}, result="r1")]
    expected = [
        call("a", {"n": 1}, result="r1"),
        call("a", {"n": 2}, result={"ok": True, "v": 2}),
        call("b", result="x"),
        call("c"),
    ]

    found = outcome("trajectory_result_match", actual, expected)

    assert found.score == pytest.approx((1 + 1 / 2 + 0) / 3)
    assert "results differ: a 0.5, b not called" in found.reason
    loose = {"paths": [{"path": "v", "tolerance": 1}]}
    assert score("trajectory_result_match", actual, expected[:2], results=loose) == 1
    assert outcome("trajectory_result_match", "a", "a").status == "not_evaluated"


def test_steps_against_the_reference_or_a_number() -> None:
    assert score("trajectory_step_efficiency", "abcd", "ab") == 1 / 2
    assert score("trajectory_step_efficiency", "a", "ab") == 1
    assert score("trajectory_step_efficiency", "abcd", None, optimalSteps=3) == 3 / 4
    assert score("trajectory_step_efficiency", RETRIED, "ab") == pytest.approx(2 / 3)
    assert score("trajectory_step_efficiency", "", "a") == 0
    assert outcome("trajectory_step_efficiency", "a", None).status == "not_evaluated"


# -- laws ------------------------------------------------------------------------------------------

NAMES = st.sampled_from("ab")
ARGUMENTS = st.sampled_from([{}, {"n": 1}, {"n": 1.0}, {"n": True}, {"n": 1, "m": "x"}])
CALLS = st.lists(st.builds(call, NAMES, ARGUMENTS), max_size=4)


@pytest.mark.slow
@settings(max_examples=200)
@given(CALLS, CALLS)
def test_each_stricter_name_implies_the_looser_ones(
    actual: list[Call], expected: list[Call]
) -> None:
    held = {name: score(f"trajectory_{name}", actual, expected) == 1 for name in WHOLE + GRADED}

    for one, other in [
        ("exact", "in_order"),
        ("in_order", "any_order"),
        ("exact", "unordered"),
        ("unordered", "subset"),
        ("unordered", "superset"),
    ]:
        assert held[other] or not held[one]
    assert held["f1"] == held["unordered"]
    assert held["edit_similarity"] == held["exact"]
    assert (held["subset"] and held["superset"]) or not held["unordered"]


@pytest.mark.slow
@settings(max_examples=100)
@given(CALLS, CALLS, st.randoms())
def test_unordered_scores_do_not_see_the_order(
    actual: list[Call], expected: list[Call], random: Any
) -> None:
    mixed = random.sample(actual, len(actual))

    for name in ("unordered", "any_order", "subset", "f1", "precision", "args_score"):
        metric = f"trajectory_{name}"
        one, other = score(metric, actual, expected), score(metric, mixed, expected)
        assert one == (other if other is None else pytest.approx(other))


@settings(max_examples=100)
@given(CALLS, CALLS)
def test_in_order_never_scores_more_than_in_any_order(
    actual: list[Call], expected: list[Call]
) -> None:
    ordered = score("trajectory_f1", actual, expected, ordered=True)
    free = score("trajectory_f1", actual, expected)

    assert ordered is not None
    assert free is not None
    assert ordered <= free + 1e-12


# -- defects of other tools that this one does not have ---------------------------------------------


def test_pairs_are_never_taken_greedily() -> None:
    """agentevals: superset fails here although an assignment exists."""
    expected = [call("t", {"x": 1}), call("t", {"x": 1, "y": 2})]
    actual = [call("t", {"x": 1, "y": 2}), call("t", {"x": 1})]
    superset = {"mode": "superset"}

    assert score("trajectory_superset", actual, expected, arguments=superset) == 1
    assert score("trajectory_unordered", actual, expected, arguments=superset) == 1
    assert score("trajectory_any_order", actual[::-1], expected, arguments=superset) == 1


def test_the_roles_of_arguments_do_not_swap() -> None:
    """agentevals: unordered with subset or superset arguments collapses to equality."""
    expected, actual = [call("t", {"x": 1})], [call("t", {"x": 1, "y": 2})]

    for name in ("unordered", "subset", "superset", "strict"):
        metric = f"trajectory_{name}"
        assert score(metric, actual, expected, arguments={"mode": "superset"}) == 1
        assert score(metric, actual, expected, arguments={"mode": "subset"}) == 0
        assert score(metric, expected, actual, arguments={"mode": "subset"}) == 1


def test_how_calls_are_split_over_messages_does_not_matter() -> None:
    """agentevals: strict fails when the model splits a message."""
    turn = {"intermediateResponses": [{"role": "assistant", "content": "and now"}]}

    assert score("trajectory_strict", "ab", "ab", turn=turn) == 1


def test_another_length_is_not_a_zero() -> None:
    """Ragas ToolCallAccuracy: any length mismatch gives 0."""
    assert score("trajectory_recall", "abc", "ab") == 1
    assert score("trajectory_f1", "a", "ab", ordered=True) == pytest.approx(2 / 3)


def test_a_number_is_itself_however_it_is_written_and_never_a_text() -> None:
    """Ragas: 1 equals "1" but not 1.0.  Google ADK: 1 equals True."""
    one = [call("t", {"n": 1})]

    assert score("trajectory_exact", [call("t", {"n": 1.0})], one) == 1
    assert score("trajectory_exact", [call("t", {"n": "1"})], one) == 0
    assert score("trajectory_exact", [call("t", {"n": True})], one) == 0


def test_repeated_calls_count_as_often_as_they_were_made() -> None:
    """Ragas F1, MLflow, Strands and DeepEval lose repetitions in sets."""
    same = [call("s", {"q": 1}), call("s", {"q": 1})]

    for name in ("f1", "precision", "recall", "exact", "unordered", "any_order"):
        assert score(f"trajectory_{name}", same, same) == 1
    assert score("trajectory_f1", same[:1], same) == pytest.approx(2 / 3)
    assert score("trajectory_unordered", same[:1], same) == 0


def test_extra_calls_have_a_price() -> None:
    """DeepEval ToolCorrectness: [a] against [a, b, c, d] is 1.0."""
    assert score("trajectory_precision", "abcd", "a") == 1 / 4
    assert score("trajectory_f1", "abcd", "a") == pytest.approx(2 / 5)
    assert score("trajectory_unordered", "abcd", "a") == 0


def test_calls_to_one_tool_may_expect_different_arguments() -> None:
    """Azure: parameters are given by tool name, so repeated calls cannot differ."""
    expected = [call("t", {"n": 1}), call("t", {"n": 2})]

    assert score("trajectory_in_order", expected, expected) == 1
    assert score("trajectory_in_order", expected[::-1], expected) == 0


def test_one_missing_early_call_does_not_zero_the_rest() -> None:
    """bigquery-agent-analytics: in_order is the furthest pointer of a prefix."""
    assert score("trajectory_recall", "bcd", "abcd", ordered=True) == 3 / 4


def test_empty_references_neither_crash_nor_are_refused() -> None:
    """Strands exact crashes without a reference; Azure raises."""
    for name in WHOLE + GRADED:
        assert outcome(f"trajectory_{name}", "a", "").status in ("passed", "failed")


def test_an_extra_tail_does_not_pass_as_exact() -> None:
    """Strands exact: no penalty for calls after the last expected one."""
    assert score("trajectory_exact", "abx", "ab") == 0


def test_a_null_call_is_like_no_other() -> None:
    assert score("trajectory_exact", [None], [None]) == 0
    assert score("trajectory_f1", [None, call("a")], [call("a"), None]) == 1 / 2


# -- criteria that make no sense -------------------------------------------------------------------


def test_without_a_criterion_the_defaults_hold() -> None:
    metric = EvalMetric.model_validate({"metricName": "trajectory_exact", "threshold": 1.0})

    assert REGISTRY.build(metric).name == "trajectory_exact"
