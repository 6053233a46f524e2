"""Assign rows to columns with the greatest total weight, each used at most once.

The Hungarian method with shortest augmenting paths (Jonker and Volgenant's form): O(n^3) in the worst case,
close to O(n^2) if most rows have different best columns.
"""

from collections.abc import Sequence

Weights = Sequence[Sequence[float]]

_FAR = float("inf")


def assign(weights: Weights) -> list[int]:
    """Return the column of each row, or -1 for an unassigned row; weights are 0 or more.

    Among assignments with the same total, the choice depends only on the order of rows and columns.
    """
    if not weights or not weights[0]:
        return [-1] * len(weights)
    if len(weights) == 1:
        return [weights[0].index(max(weights[0]))]
    if len(weights) <= len(weights[0]):
        return _assign_rows(weights)
    columns = _assign_rows([*zip(*weights, strict=True)])
    chosen = [-1] * len(weights)
    for column, row in enumerate(columns):
        chosen[row] = column
    return chosen


def _assign_rows(weights: Weights) -> list[int]:
    """Assign a column to each row; there are at least as many columns as rows.

    `best[row] - weight + price[column]`, the slack of a pair, is never negative, and is 0 for the chosen
    pairs; prices of unassigned columns are 0.  That proves that the choice is optimal.
    """
    width = len(weights[0])
    price = [0.0] * width
    best = [max(row) for row in weights]
    owner = [-1] * width
    chosen = [-1] * len(weights)
    waiting = []
    for place, row in enumerate(weights):
        if not _take_best(place, row, best[place], owner, chosen):
            waiting.append(place)
    for root in waiting:
        _augment(root, weights, best, price, owner, chosen)
    return chosen


def _take_best(
    place: int, row: Sequence[float], best: float, owner: list[int], chosen: list[int]
) -> bool:
    """Assign a free column with the row's greatest weight, if there is one."""
    column = -1
    for _ in range(row.count(best)):
        column = row.index(best, column + 1)
        if owner[column] < 0:
            owner[column], chosen[place] = place, column
            return True
    return False


def _augment(
    root: int,
    weights: Weights,
    best: list[float],
    price: list[float],
    owner: list[int],
    chosen: list[int],
) -> None:
    """Find a cheapest path from `root` to a free column, update the prices, and flip the path."""
    width = len(price)
    distance = [_FAR] * width
    came_from = [root] * width
    open_columns = [*range(width)]
    reached: list[int] = []
    row, so_far = root, 0.0
    while True:
        weight, base = weights[row], so_far + best[row]
        nearest, last = _FAR, -1
        for column in open_columns:
            slack = base - weight[column] + price[column]
            known = distance[column]
            if slack < known:
                distance[column] = known = slack
                came_from[column] = row
            if known < nearest or (known == nearest and owner[column] < 0):
                nearest, last = known, column
        # Rounding must not make a distance shrink along the path.
        so_far = max(so_far, nearest)
        if owner[last] < 0:
            break
        reached.append(last)
        open_columns.remove(last)
        row = owner[last]
    best[root] -= so_far
    for column in reached:
        gained = so_far - distance[column]
        best[owner[column]] -= gained
        price[column] += gained
    while True:
        row = came_from[last]
        owner[last], chosen[row], last = row, last, chosen[row]
        if row == root:
            return
