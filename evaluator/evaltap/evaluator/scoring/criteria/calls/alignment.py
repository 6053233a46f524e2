"""Alignment of two sequences: the best pairs in order, and the cheapest edit script.

Both are dynamic programs over the rows of a weight matrix (row: reference, column: actual).
"""

from collections.abc import Sequence
from typing import Final, Literal, NamedTuple

Weights = Sequence[Sequence[float]]

_FAR: Final = float("inf")

EditKind = Literal["keep", "substitute", "insert", "delete", "swap"]


def align(weights: Weights, width: int) -> list[int]:
    """Return the column of each row, or -1, with ascending columns and the greatest total weight.

    Pairs of weight 0 or less are not paired.
    """
    rows = [[0.0] * (width + 1)]
    for weight in weights:
        best = corner = 0.0
        row = [0.0]
        take = row.append
        # Comparisons instead of max(): this loop runs for every pair of calls.
        for value, up in zip(weight, rows[-1][1:], strict=True):
            paired = corner + value
            if paired > best:
                best = paired
            if up > best:
                best = up
            take(best)
            corner = up
        rows.append(row)
    chosen = [-1] * len(weights)
    column = width
    for place in range(len(weights) - 1, -1, -1):
        here, above = rows[place + 1], rows[place]
        while column and here[column] == here[column - 1]:
            column -= 1
        if column and here[column] != above[column]:
            column -= 1
            chosen[place] = column
    return chosen


class Costs(NamedTuple):
    """The cost of a step without a pair; `swap` is None if swaps are not allowed."""

    insert: float = 1.0
    delete: float = 1.0
    swap: float | None = None


class Edit(NamedTuple):
    """One step from the reference to the actual sequence; an index is -1 without an item on that side.

    A swap exchanges two neighbours; `reference` and `actual` are the indexes of the first of them.
    """

    kind: EditKind
    reference: int
    actual: int
    cost: float


def edit_script(steps: Weights, width: int, costs: Costs) -> list[Edit]:
    """Return the cheapest edits that turn the reference (rows) into the actual sequence (columns).

    `steps` contains the cost of replacing each row's item with each column's.
    """
    insert, delete = costs.insert, costs.delete
    rows = [[column * insert for column in range(width + 1)]]
    for number, step in enumerate(steps, start=1):
        above = rows[-1]
        swaps: Sequence[float] = ()
        if costs.swap is not None and number > 1:
            swaps = _swap_costs(rows[-2], steps[number - 2], step, costs.swap)
        corner, best = above[0], number * delete
        row = [best]
        take = row.append
        for column, (cost, up) in enumerate(zip(step, above[1:], strict=True)):
            best += insert
            changed = corner + cost
            if changed < best:
                best = changed
            if up + delete < best:
                best = up + delete
            if swaps and swaps[column] < best:
                best = swaps[column]
            take(best)
            corner = up
        rows.append(row)
    return _trace(rows, steps, costs)


def _swap_costs(
    before: list[float], earlier: Sequence[float], later: Sequence[float], swap: float
) -> list[float]:
    """Return the cost of reaching each column by a swap, if both calls resemble the other's partner."""
    reached = [_FAR]
    for column in range(1, len(later)):
        crossed = _crossed(earlier, later, column)
        reached.append(_FAR if crossed is None else before[column - 1] + swap + crossed)
    return reached


def _crossed(earlier: Sequence[float], later: Sequence[float], column: int) -> float | None:
    one, other = earlier[column], later[column - 1]
    return one + other if one < 1 and other < 1 else None


def _trace(rows: list[list[float]], steps: Weights, costs: Costs) -> list[Edit]:
    script: list[Edit] = []
    row, column = len(steps), len(rows[0]) - 1
    while row or column:
        here = rows[row][column]
        if row and column and here == rows[row - 1][column - 1] + steps[row - 1][column - 1]:
            row, column = row - 1, column - 1
            cost = steps[row][column]
            script.append(Edit("substitute" if cost else "keep", row, column, cost))
            continue
        if costs.swap is not None and row > 1 and column > 1:
            crossed = _crossed(steps[row - 2], steps[row - 1], column - 1)
            if crossed is not None and here == rows[row - 2][column - 2] + costs.swap + crossed:
                row, column = row - 2, column - 2
                script.append(Edit("swap", row, column, costs.swap + crossed))
                continue
        if row and here == rows[row - 1][column] + costs.delete:
            row -= 1
            script.append(Edit("delete", row, -1, costs.delete))
        else:
            column -= 1
            script.append(Edit("insert", -1, column, costs.insert))
    return script[::-1]
