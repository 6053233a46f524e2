"""Requirements on tool calls without a reference: bounds, loops, redundancy, recovery, state."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evaltap.evaluator import CaseScorer, MetricOutcome, Registry
from evaltap.evaluator.scoring.criteria.calls.patterns import find_loop
from evaltap.schemas import EvalMetric

REGISTRY = Registry()
BROKEN = {"type": "Timeout", "message": "too slow"}


def call(name: str, arguments: object = None, **more: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments or {}, **more}


def calls(names: str) -> list[dict[str, Any]]:
    return [call(name) for name in names]


def outcome(
    name: str, made: Any, turns: tuple[object, object] = (None, None), **criterion: Any
) -> MetricOutcome:
    """Score one turn; a text stands for calls named by its letters, `turns` are states after it."""
    tools = calls(made) if isinstance(made, str) else made
    user = {"userContent": {"role": "user", "content": "q"}}
    case = {
        "evalId": "c",
        "evalMode": "trace",
        "actualConversation": [{**user, "tools": tools, "state": turns[0]}],
        "conversation": [{**user, "state": turns[1]}],
        "sessionInput": {"appName": "a", "userId": "u"},
    }
    metric = EvalMetric.model_validate(
        {"metricName": name, "threshold": 1.0, "criterion": {"trajectory": criterion}}
    )
    return CaseScorer([metric], registry=REGISTRY).score(case).metrics[0]


def test_forbidden_tools_count_even_when_the_call_failed() -> None:
    found = outcome("trajectory_forbidden", [call("rm", error=BROKEN)], forbidden=["rm", "drop"])

    assert (found.score, found.reason) == (0, "forbidden tools called: rm")
    assert outcome("trajectory_forbidden", "ab", forbidden=["rm"]).score == 1


def test_a_share_reaches_a_threshold_that_is_the_same_share() -> None:
    assert outcome("trajectory_single_tool_use", "a", requiredTools=[*"abcde"]).score == 1 / 5
    made = [*(call(name, error=BROKEN) for name in "abcde"), call("a", {"n": 1})]
    assert outcome("trajectory_error_recovery", made).score == 1 / 5


def test_bounds_on_the_number_of_calls() -> None:
    assert outcome("trajectory_max_calls", "aab", maxCalls=3, maxCallsPerTool={"a": 2}).score == 1
    found = outcome("trajectory_max_calls", "aab", maxCalls=2, maxCallsPerTool={"a": 1, "z": 0})
    assert (found.score, found.reason) == (0, "2 calls of a, at most 1; 3 calls, at most 2")
    failed = [call("a", error=BROKEN), call("a")]
    assert outcome("trajectory_max_calls", failed, maxCalls=1).score == 0
    assert outcome("trajectory_max_calls", failed, maxCalls=1, attempts="successful").score == 1
    assert outcome("trajectory_max_calls", "a", maxCalls=0).score == 0


def test_required_tools() -> None:
    found = outcome("trajectory_single_tool_use", "ab", requiredTools=["a", "z"])

    assert (found.score, found.reason) == (0.5, "not called: z")
    failed = [call("a", error=BROKEN)]
    assert outcome("trajectory_single_tool_use", failed, requiredTools=["a"]).score == 0


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("aab", ""),
        ("xaaay", "a repeated 3 times from call 2 on"),
        ("abababc", "a, b repeated 3 times from call 1 on"),
        ("ababa", ""),
        ("xabcabcabc", "a, b, c repeated 3 times from call 2 on"),
        ("aaaaa", "a repeated 5 times from call 1 on"),
    ],
)
def test_loops_of_one_or_more_calls(made: str, told: str) -> None:
    found = outcome("trajectory_no_loop", made)

    assert (found.score, found.reason) == (0 if told else 1, told)


def test_a_loop_needs_the_same_arguments() -> None:
    made = [call("a", {"page": page, "token": page}) for page in range(4)]

    assert outcome("trajectory_no_loop", made).score == 1
    assert outcome("trajectory_no_loop", made, arguments={"mode": "ignore"}).score == 0
    assert outcome("trajectory_no_loop", "abab", repeats=2, maxPeriod=1).score == 1
    assert outcome("trajectory_no_loop", "abab", repeats=2).score == 0


@given(st.lists(st.integers(0, 2), max_size=12), st.integers(2, 3), st.integers(1, 3))
def test_a_loop_is_found_exactly_when_there_is_one(
    numbers: list[int], repeats: int, max_period: int
) -> None:
    loops = [
        (start, period)
        for period in range(1, max_period + 1)
        for start in range(len(numbers) - period * repeats + 1)
        if numbers[start : start + period] * repeats == numbers[start : start + period * repeats]
    ]

    found = find_loop(numbers, repeats, max_period)

    assert (found is None) == (not loops)
    if found is not None:
        assert (found.start, found.period) in loops
        assert found.period == min(period for _, period in loops)
        assert found.repeats >= repeats


def test_redundancy_is_told_as_the_share_of_distinct_calls() -> None:
    found = outcome("trajectory_redundancy", [*calls("aab"), call("a", {"n": 1})])

    assert (found.score, found.reason) == (3 / 4, "3 distinct calls of 4")
    assert outcome("trajectory_redundancy", "").score == 1
    one = [call("a", {"n": 1}), call("a", {"n": True}), call("a", {"n": 1.0})]
    assert outcome("trajectory_redundancy", one).score == pytest.approx(2 / 3)


def test_an_error_is_made_up_for_by_a_changed_call_that_succeeds() -> None:
    made = [
        call("a", {"n": 1}, error=BROKEN),
        call("a", {"n": 1}),
        call("b", {"n": 1}, error=BROKEN),
        call("b", {"n": 2}, error=BROKEN),
        call("b", {"n": 3}),
        call("c", error=BROKEN),
    ]

    found = outcome("trajectory_error_recovery", made)

    assert found.score == 2 / 4
    assert found.reason == "not made up for: a (call 1), c (call 6)"
    assert outcome("trajectory_error_recovery", made, unchangedRetries=True).score == 3 / 4
    quiet = outcome("trajectory_error_recovery", "ab")
    assert (quiet.status, quiet.reason) == ("not_evaluated", "no call failed")


def test_missing_evidence_is_not_a_verdict() -> None:
    hidden = [call("a", capture={"arguments": "redacted"})]

    assert outcome("trajectory_no_loop", hidden).status == "not_evaluated"
    assert outcome("trajectory_forbidden", hidden, forbidden=["x"]).score == 1


def test_states_are_compared_key_by_key() -> None:
    after, wanted = {"cart": {"a": 1, "b": 2}, "n": 1}, {"cart": {"a": 1, "b": "3"}, "n": 1}

    found = outcome("state_match", "", (after, wanted))

    assert (found.score, found.reason) == (3 / 4, "cart.b: expected '3', found 2")
    loose = {"paths": [{"path": "cart.b", "ignore": True}]}
    assert outcome("state_match", "", (after, wanted), state=loose).score == 1


def test_a_state_nobody_recorded_is_not_evaluated() -> None:
    assert outcome("state_match", "", (None, {})).reason == "evidence missing: state is absent"
    found = outcome("state_match", "", ({}, None))
    assert found.reason == "evidence missing: expected state is absent"
