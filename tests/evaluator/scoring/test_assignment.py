"""Assignment and alignment against brute force and scipy: totals, order, edit scripts."""

import itertools
import random

import numpy as np
import pytest
import scipy  # type: ignore[import-untyped]  # scipy ships no types
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.evaluator.scoring.criteria.calls.alignment import Costs, align, edit_script
from evaltap.evaluator.scoring.criteria.calls.assignment import assign

WEIGHT = st.sampled_from([0.0, 0.25, 1 / 3, 0.5, 0.75, 1.0]) | st.floats(0, 1)


@st.composite
def matrices(draw: st.DrawFn, size: int = 4) -> list[list[float]]:
    rows, columns = draw(st.integers(1, size)), draw(st.integers(1, size))
    row = st.lists(WEIGHT, min_size=columns, max_size=columns)
    return draw(st.lists(row, min_size=rows, max_size=rows))


def total(weights: list[list[float]], chosen: list[int]) -> float:
    return sum(weights[one][other] for one, other in enumerate(chosen) if other >= 0)


def choices(rows: int, columns: int) -> list[tuple[int, ...]]:
    """All ways to give rows a column or none, each column once."""
    return [
        choice
        for choice in itertools.product(range(-1, columns), repeat=rows)
        if len({*choice} - {-1}) == rows - choice.count(-1)
    ]


@pytest.mark.slow
@settings(max_examples=200)
@given(matrices())
def test_no_assignment_has_a_greater_total(weights: list[list[float]]) -> None:
    chosen = assign(weights)

    best = max(total(weights, [*choice]) for choice in choices(len(weights), len(weights[0])))
    assert total(weights, chosen) == pytest.approx(best)
    taken = [other for other in chosen if other >= 0]
    assert len({*taken}) == len(taken) == min(len(weights), len(weights[0]))


@pytest.mark.slow
@settings(max_examples=100)
@given(matrices(12))
def test_the_total_is_that_of_scipy(weights: list[list[float]]) -> None:
    matrix = np.array(weights)
    rows, columns = scipy.optimize.linear_sum_assignment(matrix, maximize=True)

    assert total(weights, assign(weights)) == pytest.approx(matrix[rows, columns].sum())


@pytest.mark.parametrize("levels", [1, 4, 1000])
@pytest.mark.parametrize(("rows", "columns"), [(60, 60), (40, 70), (70, 40)])
def test_large_assignments_equal_scipy(rows: int, columns: int, levels: int) -> None:
    rng = random.Random(levels)
    weights = [[rng.randint(0, levels) / levels for _ in range(columns)] for _ in range(rows)]
    matrix = np.array(weights)
    ones, others = scipy.optimize.linear_sum_assignment(matrix, maximize=True)

    assert total(weights, assign(weights)) == pytest.approx(matrix[ones, others].sum())


def test_nothing_can_be_assigned_to_nothing() -> None:
    assert assign([]) == []
    assert assign([[], []]) == [-1, -1]
    assert align([[], []], 0) == [-1, -1]
    assert align([], 3) == []


@pytest.mark.slow
@settings(max_examples=200)
@given(matrices())
def test_no_alignment_in_order_has_a_greater_total(weights: list[list[float]]) -> None:
    chosen = align(weights, len(weights[0]))

    rising = [
        choice
        for choice in choices(len(weights), len(weights[0]))
        if [*filter(lambda other: other >= 0, choice)] == sorted({*choice} - {-1})
    ]
    best = max(total(weights, [*choice]) for choice in rising)
    taken = [other for other in chosen if other >= 0]
    assert total(weights, chosen) == pytest.approx(best)
    assert taken == sorted({*taken})
    assert all(weights[one][other] > 0 for one, other in enumerate(chosen) if other >= 0)


def cheapest(steps: list[list[float]], row: int, column: int, costs: Costs) -> float:
    """The cost of the cheapest script by plain recursion over prefixes."""
    if not row or not column:
        return row * costs.delete + column * costs.insert
    ways = [
        cheapest(steps, row - 1, column, costs) + costs.delete,
        cheapest(steps, row, column - 1, costs) + costs.insert,
        cheapest(steps, row - 1, column - 1, costs) + steps[row - 1][column - 1],
    ]
    if costs.swap is not None and row > 1 and column > 1:
        crossed = steps[row - 2][column - 1], steps[row - 1][column - 2]
        if max(crossed) < 1:
            ways.append(cheapest(steps, row - 2, column - 2, costs) + costs.swap + sum(crossed))
    return min(ways)


@settings(max_examples=200)
@given(
    matrices(),
    st.builds(
        Costs,
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from([0.5, 1.0, 2.0]),
        st.sampled_from([None, 0.25, 1.0]),
    ),
)
def test_the_edit_script_is_the_cheapest_and_says_all(
    steps: list[list[float]], costs: Costs
) -> None:
    script = edit_script(steps, len(steps[0]), costs)

    cost = cheapest(steps, len(steps), len(steps[0]), costs)
    assert sum(edit.cost for edit in script) == pytest.approx(cost)
    used = [edit.reference for edit in script if edit.reference >= 0]
    used += [edit.reference + 1 for edit in script if edit.kind == "swap"]
    assert sorted(used) == [*range(len(steps))]
    made = [edit.actual for edit in script if edit.actual >= 0]
    made += [edit.actual + 1 for edit in script if edit.kind == "swap"]
    assert sorted(made) == [*range(len(steps[0]))]


def test_a_swap_is_one_step_where_it_has_a_price() -> None:
    steps = [[1.0, 0.0], [0.0, 1.0]]

    assert [edit.kind for edit in edit_script(steps, 2, Costs(swap=0.5))] == ["swap"]
    assert sum(edit.cost for edit in edit_script(steps, 2, Costs())) == 2
