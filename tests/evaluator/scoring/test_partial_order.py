"""Partially ordered references: the best choice by brute force; alternatives, options, the bound."""

import itertools
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.partial_order import (
    Node,
    match_partial_order,
    read_nodes,
    share_matched,
)

WEIGHT = st.sampled_from([0.0, 0.0, 0.5, 1.0])


def node(name: str, *after: str, **more: Any) -> dict[str, Any]:
    return {"id": name, "name": name, "after": [*after], **more}


@st.composite
def problems(draw: st.DrawFn) -> tuple[list[Node], list[list[float]], int]:
    size, width = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    calls = []
    for place in range(size):
        earlier = [str(one) for one in range(place)]
        after = draw(st.lists(st.sampled_from(earlier), max_size=2)) if earlier else []
        group = draw(st.sampled_from(["", "", "g"]))
        optional = draw(st.booleans())
        calls.append(node(str(place), *after, optional=optional, alternative=group))
    # An alternative that must follow its own group is a cycle, so edges within it are left out.
    for call in calls:
        call["after"] = [
            name for name in call["after"] if not (call["alternative"] and _in_group(calls, name))
        ]
    row = st.lists(WEIGHT, min_size=width, max_size=width)
    weights = draw(st.lists(row, min_size=size, max_size=size))
    try:
        return read_nodes(calls), weights, width
    except MetricError:
        return read_nodes([{**call, "after": []} for call in calls]), weights, width


def _in_group(calls: list[dict[str, Any]], name: str) -> bool:
    return any(call["id"] == name and call["alternative"] for call in calls)


def best_share(nodes: list[Node], weights: list[list[float]], width: int) -> float:
    best = 0.0
    for chosen in itertools.product(range(-1, width), repeat=len(nodes)):
        taken = [other for other in chosen if other >= 0]
        matched = [place for place, other in enumerate(chosen) if other >= 0]
        groups = [nodes[place].group for place in matched if nodes[place].group]
        if len({*taken}) < len(taken) or len({*groups}) < len(groups):
            continue
        if all(
            chosen[one] < chosen[place]
            for place in matched
            for one in nodes[place].before
            if chosen[one] >= 0
        ):
            best = max(best, share_matched(nodes, weights, chosen))
    return best


@pytest.mark.slow
@settings(max_examples=400)
@given(problems())
def test_no_choice_that_keeps_the_order_scores_more(
    problem: tuple[list[Node], list[list[float]], int],
) -> None:
    nodes, weights, width = problem

    match = match_partial_order(nodes, weights, width)

    assert match.exact
    assert share_matched(nodes, weights, match.chosen) == pytest.approx(
        best_share(nodes, weights, width), abs=1e-5
    )
    for place, other in enumerate(match.chosen):
        for earlier in nodes[place].before:
            assert other < 0 or match.chosen[earlier] < other


def score(reference: list[dict[str, Any]], actual: str) -> float:
    weights = [[float(call["name"] == name) for name in actual] for call in reference]
    nodes = read_nodes(reference)
    return share_matched(nodes, weights, match_partial_order(nodes, weights, len(actual)).chosen)


DIAMOND = [node("a"), node("b", "a"), node("c", "a"), node("d", "b", "c")]


@pytest.mark.parametrize(
    ("actual", "share"),
    [
        ("abcd", 1),
        ("acbd", 1),
        ("xaxcxbxd", 1),
        ("bacd", 3 / 4),
        ("dabc", 3 / 4),
        ("", 0),
        ("dcba", 1 / 2),
    ],
)
def test_parallel_branches_may_come_in_either_order(actual: str, share: float) -> None:
    assert score(DIAMOND, actual) == share


def test_order_reaches_across_a_call_that_was_not_made() -> None:
    chain = [node("a"), node("b", "a"), node("c", "b")]

    assert score(chain, "ac") == 2 / 3
    assert score(chain, "ca") == 1 / 3


def test_one_alternative_is_enough_and_the_group_can_be_waited_for() -> None:
    reference = [
        node("a", alternative="find"),
        node("b", alternative="find"),
        node("c", "find"),
    ]

    assert score(reference, "ac") == score(reference, "bc") == score(reference, "abc") == 1
    assert score(reference, "cb") == 1 / 2
    one_optional = [node("a", alternative="find"), node("b", alternative="find", optional=True)]
    assert score(one_optional, "b") == 1
    assert score(one_optional, "") == 0


def test_an_optional_call_costs_nothing_and_keeps_its_place() -> None:
    reference = [node("a"), node("b", "a", optional=True), node("c", "b")]

    assert score(reference, "ac") == score(reference, "abc") == score(reference, "cba") + 1 / 2 == 1
    assert score([node("a", optional=True)], "") == 1


def test_many_parallel_calls_that_nothing_tells_apart_are_no_work() -> None:
    reference = [node("start")] + [node(f"p{number}", "start") for number in range(40)]
    weights = [[1.0] + [0.0] * 40] + [[1.0] * 41 for _ in range(40)]

    match = match_partial_order(read_nodes(reference), weights, 41)

    assert match.exact
    assert sorted(match.chosen) == [*range(41)]


def test_a_search_that_is_cut_off_says_so() -> None:
    size = 14
    reference = [node(str(one), *([str(one - 2)] if one > 1 else [])) for one in range(size)]
    weights = [[1 / (1 + abs(size - one - other)) for other in range(size)] for one in range(size)]
    nodes = read_nodes(reference)

    cut = match_partial_order(nodes, weights, size, max_states=3)
    full = match_partial_order(nodes, weights, size)

    assert not cut.exact
    assert full.exact
    assert share_matched(nodes, weights, cut.chosen) <= share_matched(nodes, weights, full.chosen)


def test_a_long_chain_out_of_order_is_no_work() -> None:
    size = 200
    reference = [node(str(one), *([str(one - 1)] if one else [])) for one in range(size)][::-1]
    weights = [[1 / (1 + (one * 7 + other) % 5) for other in range(size)] for one in range(size)]

    match = match_partial_order(read_nodes(reference), weights, size)

    assert match.exact
    assert match.chosen == [*reversed(align(weights[::-1], size))]


def test_an_order_that_cannot_be_kept_is_refused() -> None:
    with pytest.raises(MetricError, match="must come after itself"):
        read_nodes([node("a", "b"), node("b", "a")])
    with pytest.raises(MetricError, match="is after 'x'; known ids and alternatives: a"):
        read_nodes([node("a", "x")])
