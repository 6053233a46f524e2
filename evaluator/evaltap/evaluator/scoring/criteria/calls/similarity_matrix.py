"""The similarity of many values with many others, key by key instead of pair by pair.

For each key, values are grouped so that no comparison can distinguish the values of a group.  Only distinct
values are compared: equal ones are found by hash, and close numbers by bisection.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final

from evaltap.evaluator.scoring.criteria.calls.comparison import Comparison, identity, within

Value = Any
"""A decoded JSON value."""
Object = dict[str, Value]
Rows = list[list[float]]
Column = list[tuple[int, Value]]
"""The values of one key, each with the index of its object."""
Groups = dict[Hashable, tuple[Value, list[int]]]

Score = Callable[[Comparison, Value, Value], float]
Counts = Callable[[Comparison, bool, bool], bool]

VETO: Final = float("-inf")
"""The score of a pair in which a required part differs; adding to it does not change it."""


def similarity_rows(
    root: Comparison,
    references: Sequence[Value],
    actuals: Sequence[Value],
    score: Score,
    counts: Counts,
) -> Rows:
    """Return the score of each reference (a row) with each actual value.

    `score` defines the score of one pair; `counts` returns whether a key counts, given which sides have it.
    """
    return _Columns(score, counts).rows(root, references, actuals)


class _Columns:
    def __init__(self, score: Score, counts: Counts) -> None:
        self._score = score
        self._counts = counts

    def rows(self, node: Comparison, references: Sequence[Value], actuals: Sequence[Value]) -> Rows:
        kinds = {*map(type, references), *map(type, actuals)}
        if kinds <= {dict} and not node.whole:
            return self._objects(node, references, actuals)
        rows = [[0.0] * len(actuals) for _ in references]
        self._add_values(rows, node, 1.0, [*enumerate(references)], [*enumerate(actuals)])
        return rows

    def _objects(
        self, node: Comparison, references: Sequence[Object], actuals: Sequence[Object]
    ) -> Rows:
        rows = [[0.0] * len(actuals) for _ in references]
        left, right = _by_key(references), _by_key(actuals)
        keys = [key for key in {**left, **right} if not node.part(key).ignore]
        for key in keys:
            self._add(rows, node, key, left.get(key, []), right.get(key, []))
        shapes = [frozenset(value) for value in actuals]
        totals: dict[frozenset[str], list[float]] = {}
        for place, reference in enumerate(references):
            shape = frozenset(reference)
            divisors = totals.get(shape)
            if divisors is None:
                known = {other: self._total(node, keys, shape, other) for other in {*shapes}}
                divisors = totals[shape] = [known[other] for other in shapes]
            pairs = zip(rows[place], divisors, strict=True)
            rows[place] = [
                score / total if total else min(1.0, score + 1.0) for score, total in pairs
            ]
        return rows

    def _total(
        self, node: Comparison, keys: list[str], reference: frozenset[str], actual: frozenset[str]
    ) -> float:
        # Summed in the order of the scores, so that a pair without a difference scores exactly 1.
        total = 0.0
        for key in keys:
            wanted, found = key in reference, key in actual
            if (wanted or found) and self._counts(node, wanted, found):
                total += node.part(key).weight
        return total

    def _add(self, rows: Rows, node: Comparison, key: str, left: Column, right: Column) -> None:
        """Add the weighted similarity of one key to all pairs of objects that have the key."""
        part = node.part(key)
        if not part.required:
            self._add_values(rows, part, part.weight, left, right)
            return
        scores = [[0.0] * len(row) for row in rows]
        self._add_values(scores, part, 1.0, left, right)
        ones, others = {place for place, _ in left}, {place for place, _ in right}
        for one, row in enumerate(rows):
            for other, score in enumerate(scores[one]):
                wanted, found = one in ones, other in others
                if wanted and found:
                    row[other] += part.weight if score == 1 else VETO
                elif (wanted or found) and self._counts(node, wanted, found):
                    row[other] = VETO

    def _add_values(
        self, rows: Rows, part: Comparison, weight: float, left: Column, right: Column
    ) -> None:
        """Add the similarity of values, multiplied by the weight, at their indexes."""
        left, right = self._add_objects(rows, part, weight, left, right)
        if part.match == "regex":  # the matches of a pattern cannot be found by key
            self._add_each(rows, part, weight, left, right)
            return
        # The items of lists may be close, or have their own rules.
        apart = not part.whole and (part.differs or part.tolerance is not None)
        found = _grouped(part.key, right)
        for key, (value, ones) in _grouped(part.key, left).items():
            if key in found and not (apart and type(value) is list):
                _spread(rows, ones, found[key][1], weight)
        if part.tolerance is not None and not part.whole:
            _add_close(rows, part, part.tolerance, weight, left, right)
        if apart:
            self._add_each(rows, part, weight, _of(list, left), _of(list, right))

    def _add_objects(
        self, rows: Rows, part: Comparison, weight: float, left: Column, right: Column
    ) -> tuple[Column, Column]:
        """Add the similarity of objects with objects; return the values that remain to be compared."""
        wanted, found = _of(dict, left), _of(dict, right)
        if part.whole or not wanted or not found:
            return left, right
        ones, others = _grouped(identity, wanted), _grouped(identity, found)
        scores = self._objects(
            part, [value for value, _ in ones.values()], [value for value, _ in others.values()]
        )
        for (_, places), row in zip(ones.values(), scores, strict=True):
            for (_, columns), score in zip(others.values(), row, strict=True):
                if score:
                    _spread(rows, places, columns, score if score == VETO else weight * score)
        # An object only equals objects.
        return _other_than_objects(left), _other_than_objects(right)

    def _add_each(
        self, rows: Rows, part: Comparison, weight: float, left: Column, right: Column
    ) -> None:
        found = _grouped(identity, right).values()
        for value, ones in _grouped(identity, left).values():
            for other, others in found:
                if score := self._score(part, value, other):
                    _spread(rows, ones, others, score if score == VETO else weight * score)


def _add_close(
    rows: Rows, part: Comparison, tolerance: float, weight: float, left: Column, right: Column
) -> None:
    """Add the weight for numbers that are close but not equal."""
    found = _grouped(identity, _numbers(part, right)).items()
    numbers = sorted(found, key=lambda one: one[1][0])
    values = [value for _, (value, _) in numbers]
    for key, (value, ones) in _grouped(identity, _numbers(part, left)).items():
        try:
            low, high = value - tolerance, value + tolerance
        except OverflowError:
            low = high = value
        # Rounding may move a bound by one digit; `within` decides at the edges.
        first = max(0, bisect_left(values, low) - 1)
        last = bisect_right(values, high) + 1
        for equal, (other, others) in numbers[first:last]:
            if equal != key and within(value, other, tolerance):
                _spread(rows, ones, others, weight)


def _spread(rows: Rows, ones: list[int], others: list[int], amount: float) -> None:
    for one in ones:
        row = rows[one]
        for other in others:
            row[other] += amount


def _of(kind: type, column: Column) -> Column:
    return [one for one in column if type(one[1]) is kind]


def _numbers(part: Comparison, column: Column) -> Column:
    found = ((place, part.number(value)) for place, value in column)
    return [one for one in found if one[1] is not None]


def _other_than_objects(column: Column) -> Column:
    return [one for one in column if type(one[1]) is not dict]


def _by_key(objects: Sequence[Object]) -> dict[str, Column]:
    columns: dict[str, Column] = {}
    for place, value in enumerate(objects):
        for key, item in value.items():
            column = columns.get(key)
            if column is None:
                columns[key] = [(place, item)]
            else:
                column.append((place, item))
    return columns


def _grouped(key_of: Callable[[Value], Hashable], column: Column) -> Groups:
    groups: Groups = {}
    for place, value in column:
        key = key_of(value)
        group = groups.get(key)
        if group is None:
            groups[key] = value, [place]
        else:
            group[1].append(place)
    return groups
