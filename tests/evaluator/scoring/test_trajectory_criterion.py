"""Matching and tool trajectories: laws of the matcher, strategies without merging, reasons."""

import itertools
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.cases.turn import Turn
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.evaluators.tool_trajectory import ToolTrajectoryMatcher
from evaltap.schemas.formats.metric import ToolTrajectoryCriterion

SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "1", 1.5])


def trajectory_mismatch(actual: list[Any], expected: list[Any], **criterion: Any) -> str | None:
    matcher = ToolTrajectoryMatcher(ToolTrajectoryCriterion.model_validate(criterion))
    return matcher.mismatch(Turn({"tools": actual}), Turn({"tools": expected}))


def call(name: str, arguments: object = None, result: object = None) -> dict[str, Any]:
    return {"id": "x", "name": name, "arguments": arguments, "result": result}


# -- matching --------------------------------------------------------------------------------------


@st.composite
def graphs(draw: st.DrawFn) -> tuple[int, int, set[tuple[int, int]]]:
    left, right = draw(st.integers(0, 5)), draw(st.integers(0, 5))
    pairs = list(itertools.product(range(left), range(right)))
    return left, right, draw(st.sets(st.sampled_from(pairs))) if pairs else set()


def coverable(vertices: tuple[int, ...], right: int, edges: set[tuple[int, int]]) -> bool:
    return any(
        all(pair in edges for pair in zip(vertices, places, strict=True))
        for places in itertools.permutations(range(right), len(vertices))
    )


@given(graphs())
def test_the_uncovered_are_those_that_no_earlier_choice_could_save(
    graph: tuple[int, int, set[tuple[int, int]]],
) -> None:
    left, right, edges = graph
    kept: tuple[int, ...] = ()
    for vertex in range(left):
        if coverable((*kept, vertex), right, edges):
            kept = (*kept, vertex)

    def neighbours(one: int) -> list[int]:
        return [other for other in range(right) if (one, other) in edges]

    plain = match_left(left, right, neighbours)
    hinted = match_left(
        left, right, neighbours, candidates=[neighbours(one)[:1] for one in range(left)]
    )

    assert plain.uncovered_left == [one for one in range(left) if one not in kept]
    assert hinted.uncovered_left == plain.uncovered_left
    assert len(plain.free_right) == right - len(kept)


def test_long_augmenting_paths_need_no_deep_stack() -> None:
    size = 3000

    def neighbours(one: int) -> list[int]:
        return [0] if one == size - 1 else [one, one + 1]

    assert match_left(size, size, neighbours).uncovered_left == []


# -- tool trajectories -----------------------------------------------------------------------------

NAMES = st.sampled_from(["a", "b", "get_time"])
CALLS = st.lists(
    st.builds(call, NAMES, st.sampled_from([None, {}, {"n": 1}, {"n": 1.0}, {"n": True}]), SCALARS),
    max_size=4,
)
CRITERIA = st.fixed_dictionaries(
    {
        "orderSensitive": st.booleans(),
        "subsetMatching": st.booleans(),
        "toolStrategy": st.sampled_from(
            [{}, {"get_time": {"result": {"ignore": True}}}, {"a": {"name": {}, "arguments": {}}}]
        ),
    },
    optional={
        "defaultStrategy": st.sampled_from(
            [
                {},
                {"name": {}},
                {"name": {}, "arguments": {"numberTolerance": 0.0}},
                {"name": {}, "arguments": {"numberTolerance": -1.0}, "result": {}},
                {"name": {"matchStrategy": "regex"}, "arguments": {"ignoreTree": {"n": True}}},
                {"name": {"length": {"max": 1}}, "arguments": {}},
            ]
        )
    },
)


class SlowMatcher(ToolTrajectoryMatcher):
    """The matcher without proof by equal bytes or names."""

    def _key(self, tool: Any) -> object:
        return object()

    def _keys(self, tools: Any) -> list[object]:
        return [object() for _ in tools]

    def _row(self, calls: Any, tool: Any) -> list[str | None]:
        return [self._compare(call, tool) for call in calls]


@pytest.mark.slow
@settings(max_examples=300)
@given(CALLS, CALLS, CRITERIA, st.booleans())
def test_equal_bytes_and_names_never_change_an_outcome(
    actual: list[Any], expected: list[Any], criterion: dict[str, Any], copied: bool
) -> None:
    model = ToolTrajectoryCriterion.model_validate(criterion)
    wanted = json.loads(json.dumps(actual[::-1])) if copied else expected
    turns = Turn({"tools": actual}), Turn({"tools": wanted})

    fast, slow = ToolTrajectoryMatcher(model).mismatch(*turns), SlowMatcher(model).mismatch(*turns)

    assert (fast is None) == (slow is None)


@given(CALLS, CALLS, CRITERIA)
def test_ordered_implies_unordered_and_full_implies_subset(
    actual: list[Any], expected: list[Any], criterion: dict[str, Any]
) -> None:
    def matches(**changes: bool) -> bool:
        return trajectory_mismatch(actual, expected, **{**criterion, **changes}) is None

    for subset in (False, True):
        if matches(orderSensitive=True, subsetMatching=subset):
            assert matches(orderSensitive=False, subsetMatching=subset)
    for ordered in (False, True):
        if matches(orderSensitive=ordered, subsetMatching=False):
            assert matches(orderSensitive=ordered, subsetMatching=True)


@given(CALLS, st.randoms(), CRITERIA)
def test_unordered_matching_does_not_see_the_order(
    calls: list[Any], random: Any, criterion: dict[str, Any]
) -> None:
    def matches(actual: list[Any], expected: list[Any]) -> bool:
        unordered = {**criterion, "orderSensitive": False}
        return trajectory_mismatch(actual, expected, **unordered) is None

    mixed = random.sample(calls, len(calls))

    assert matches(calls, calls) == matches(mixed, calls) == matches(calls, mixed)


def test_greedy_pairing_would_miss_this_matching() -> None:
    strategy = {"name": {}, "arguments": {"numberTolerance": 0.6}}
    actual = [call("t", 1.0), call("t", 1.5)]
    expected = [call("t", 1.2), call("t", 0.9)]

    assert trajectory_mismatch(actual, expected, defaultStrategy=strategy) is None
    assert trajectory_mismatch(actual, expected[::-1], defaultStrategy=strategy) is None


def test_a_tool_strategy_replaces_the_default_as_a_whole() -> None:
    criterion = {"toolStrategy": {"get_time": {"result": {"ignore": True}}}}

    assert trajectory_mismatch([call("get_time", 1)], [call("get_news", 2)], **criterion) is None
    assert trajectory_mismatch([call("get_news", 1)], [call("get_time", 2)], **criterion) is None


def test_the_reason_names_the_expected_call_and_what_differs() -> None:
    reason = trajectory_mismatch([call("a", {"n": 1}), call("b")], [call("b"), call("a", {"n": 9})])

    assert reason is not None
    assert reason.startswith(
        "tool trajectory mismatch: match tools: 2 errors occurred:\n\t* cannot match all left "
        "vertices\n\t* tool id x with name a mismatch"
    )
    assert "compare n: number mismatch: actual(1) != expected(9)" in reason
    assert reason.endswith("\n\n")


def test_the_counts_are_checked_first() -> None:
    one, two = [call("a")], [call("a"), call("a")]

    assert "actual(2) != expected(1)" in (trajectory_mismatch(two, one) or "")
    assert "actual(1) < expected(2)" in (trajectory_mismatch(one, two, subsetMatching=True) or "")


def test_the_ordered_reason_names_where_it_ran_out() -> None:
    reason = trajectory_mismatch(
        [call("b"), call("a")], [call("a"), call("b")], orderSensitive=True
    )

    assert reason is not None
    assert "tool id x with name b mismatch" in reason


def test_a_null_call_has_no_pair_and_null_turns_do_not_match() -> None:
    assert trajectory_mismatch([None], [None]) is not None
    assert trajectory_mismatch([None, call("a")], [call("a")], subsetMatching=True) is None
    matcher = ToolTrajectoryMatcher(ToolTrajectoryCriterion())
    assert "nil" in (matcher.mismatch(Turn(None), Turn({})) or "")


def test_equal_names_that_are_too_long_do_not_match() -> None:
    strategy = {"name": {"length": {"max": 5}}}

    assert trajectory_mismatch([call("book")], [call("book")], defaultStrategy=strategy) is None
    reason = trajectory_mismatch([call("search")], [call("search")], defaultStrategy=strategy)
    assert "length mismatch: 6 is greater than max 5" in (reason or "")


def test_absent_arguments_are_null_and_not_an_empty_object() -> None:
    assert trajectory_mismatch([{"name": "a"}], [call("a")]) is None
    assert trajectory_mismatch([{"name": "a"}], [call("a", {})]) is not None
