"""How alike two JSON values are, from 0 to 1: the likeness of arguments, results and states.

The likeness of two objects is the weighted mean over their keys; anything else is equal or not.
Numbers are equal by value (1 and 1.0), a boolean is never a number, and a text is never a number
unless that is asked for.  `Likeness.pair` is the definition; `Likeness.matrix` gives the same for
many values at a time, by looking at each key once instead of at each pair.
"""

from collections.abc import Callable, Hashable, Sequence
from itertools import chain
from typing import Any, Final

from evaltap.evaluator.criteria.comparison import Comparison, compile_comparison
from evaltap.schemas.trajectory import ValueCriterion

Value = Any
"""A decoded JSON value."""
Rows = list[list[float]]
Object = dict[str, Value]

_VETO: Final = float("-inf")
_NOTHING: Final[list[tuple[int, Value]]] = []


class Likeness:
    """A compiled `ValueCriterion`; use it from any thread.

    Raises MetricError when the criterion makes no sense.
    """

    def __init__(self, criterion: ValueCriterion | None) -> None:
        self._root = compile_comparison(criterion or ValueCriterion())
        mode = self._root.mode
        self.ignores_values = mode == "ignore"
        self._counts_missing = mode != "subset"
        self._counts_extra = mode != "superset"

    def pair(self, reference: Value, actual: Value) -> float:
        """Return the likeness of two values; 1 exactly when nothing that is compared differs."""
        if self.ignores_values:
            return 1.0
        reference, actual = _stated(reference), _stated(actual)
        return max(0.0, self._score(self._root, reference, actual))

    def matrix(self, references: Sequence[Value], actuals: Sequence[Value]) -> Rows:
        """Return the likeness of each reference (a row) with each actual value."""
        if self.ignores_values:
            return [[1.0] * len(actuals) for _ in references]
        references, actuals = [*map(_stated, references)], [*map(_stated, actuals)]
        root = self._root
        if root.whole or not all(type(value) is dict for value in chain(references, actuals)):
            return [[self.pair(one, other) for other in actuals] for one in references]
        rows = self._objects(root, references, actuals)
        return [[value if value > 0 else 0.0 for value in row] for row in rows]

    def changes(self, reference: Value, actual: Value) -> list[tuple[str, Value, Value]]:
        """Return what differs as (path, reference, actual), with `...` for a value that is absent."""
        if self.ignores_values:
            return []
        return [*self._changes(self._root, "", _stated(reference), _stated(actual))]

    def _score(self, node: Comparison, reference: Value, actual: Value) -> float:
        score = self._raw_score(node, reference, actual)
        return _VETO if node.required and score < 1 else score

    def _raw_score(self, node: Comparison, reference: Value, actual: Value) -> float:
        if not node.whole:
            if type(reference) is dict and type(actual) is dict:
                return self._object_score(node, reference, actual)
            if node.parts and type(reference) is list and type(actual) is list:
                return self._list_score(node, reference, actual)
        return 1.0 if node.equal(reference, actual) else 0.0

    def _object_score(self, node: Comparison, reference: Object, actual: Object) -> float:
        total = score = 0.0
        for key in {**reference, **actual}:
            part = node.part(key)
            if part.ignore or not self._counts(node, key, reference, actual):
                continue
            total += part.weight
            if key in reference and key in actual:
                score += part.weight * self._score(part, reference[key], actual[key])
            elif part.required:
                return _VETO
        # A weight of 0 times a veto is no number, and a veto all the same.
        if score != score or score == _VETO:
            return _VETO
        return score / total if total else 1.0

    def _list_score(self, node: Comparison, reference: list[Value], actual: list[Value]) -> float:
        longer = max(len(reference), len(actual))
        pairs = zip(reference, actual, strict=False)
        scores = [self._score(node.part(str(place)), *pair) for place, pair in enumerate(pairs)]
        return sum(scores) / longer if longer else 1.0

    def _counts(self, node: Comparison, key: str, reference: Object, actual: Object) -> bool:
        """Tell whether a key counts: subset and superset leave keys of the outermost object out."""
        if node is not self._root:
            return True
        if key not in actual:
            return self._counts_missing
        return self._counts_extra or key in reference

    def _objects(
        self, node: Comparison, references: Sequence[Object], actuals: Sequence[Object]
    ) -> Rows:
        rows = [[0.0] * len(actuals) for _ in references]
        left, right = _by_key(references), _by_key(actuals)
        keys = [key for key in {**left, **right} if not node.part(key).ignore]
        for key in keys:
            self._add(rows, node.part(key), left.get(key, _NOTHING), right.get(key, _NOTHING))
        shapes = [frozenset(value) for value in actuals]
        totals: dict[frozenset[str], list[float]] = {}
        for place, reference in enumerate(references):
            shape = frozenset(reference)
            divisors = totals.get(shape)
            if divisors is None:
                divisors = totals[shape] = self._totals(node, keys, shape, shapes)
            pairs = zip(rows[place], divisors, strict=True)
            rows[place] = [score / total if total else min(1.0, score + 1.0) for score, total in pairs]
        return rows

    def _totals(
        self,
        node: Comparison,
        keys: list[str],
        reference: frozenset[str],
        actuals: Sequence[frozenset[str]],
    ) -> list[float]:
        """Return the weight of all keys that a reference and each actual value have, by their keys."""
        known = {shape: self._total(node, keys, reference, shape) for shape in {*actuals}}
        return [known[shape] for shape in actuals]

    def _total(
        self, node: Comparison, keys: list[str], reference: frozenset[str], actual: frozenset[str]
    ) -> float:
        # Summed in the order of the scores, so that a pair without a difference comes out at 1.
        total = 0.0
        left, right = dict.fromkeys(reference), dict.fromkeys(actual)
        for key in keys:
            if (key in left or key in right) and self._counts(node, key, left, right):
                total += node.part(key).weight
        return total

    def _add(
        self,
        rows: Rows,
        part: Comparison,
        left: list[tuple[int, Value]],
        right: list[tuple[int, Value]],
    ) -> None:
        """Add the weighted likeness at one key to all pairs of objects that have the key."""
        if part.by_key and not part.required and not part.parts:
            self._add_by_key(rows, part, left, right)
            return
        wanted, found = _grouped(part.identity, left), _grouped(part.identity, right)
        for value, ones in wanted.values():
            for other_value, others in found.values():
                score = self._score(part, value, other_value)
                if score:
                    more = score if score == _VETO else part.weight * score
                    for one in ones:
                        for other in others:
                            rows[one][other] += more
        if part.required:
            self._veto_one_sided(rows, part, {one for one, _ in left}, {one for one, _ in right})

    def _veto_one_sided(
        self, rows: Rows, part: Comparison, left: set[int], right: set[int]
    ) -> None:
        missing = self._counts_missing or not part.outermost
        extra = self._counts_extra or not part.outermost
        for one, row in enumerate(rows):
            for other in range(len(row)):
                if (one in left) != (other in right) and (missing if one in left else extra):
                    row[other] = _VETO

    def _add_by_key(
        self,
        rows: Rows,
        part: Comparison,
        left: list[tuple[int, Value]],
        right: list[tuple[int, Value]],
    ) -> None:
        weight = part.weight
        places, wanted = _grouped(part.key, right), _grouped(part.key, left)
        nested = not part.whole
        objects: dict[Hashable, Object] = {}
        for key, (value, others) in places.items():
            if nested and type(value) is dict:
                objects[key] = value
                continue
            for one in wanted[key][1] if key in wanted else ():
                row = rows[one]
                for other in others:
                    row[other] += weight
        references = {
            key: value for key, (value, _) in wanted.items() if nested and type(value) is dict
        }
        if not objects or not references:
            return
        inner = self._objects(part, [*references.values()], [*objects.values()])
        for key, scores in zip(references, inner, strict=True):
            for other_key, score in zip(objects, scores, strict=True):
                if score:
                    for one in wanted[key][1]:
                        row = rows[one]
                        for other in places[other_key][1]:
                            row[other] += weight * score if score != _VETO else _VETO

    def _changes(
        self, node: Comparison, path: str, reference: Value, actual: Value
    ) -> list[tuple[str, Value, Value]]:
        both = type(reference) is dict and type(actual) is dict and not node.whole
        if not both:
            same = self._raw_score(node, reference, actual) == 1
            return [] if same else [(path, reference, actual)]
        found: list[tuple[str, Value, Value]] = []
        for key in {**reference, **actual}:
            part = node.part(key)
            weightless = not part.weight and not part.required
            if part.ignore or weightless or not self._counts(node, key, reference, actual):
                continue
            inner = f"{path}.{key}" if path else key
            if key in reference and key in actual:
                found += self._changes(part, inner, reference[key], actual[key])
            else:
                found.append((inner, reference.get(key, ...), actual.get(key, ...)))
        return found


def _stated(value: Value) -> Value:
    """Take absent arguments for empty ones: recorders write either for a call without any."""
    return {} if value is None else value


def _by_key(objects: Sequence[Object]) -> dict[str, list[tuple[int, Value]]]:
    columns: dict[str, list[tuple[int, Value]]] = {}
    for place, value in enumerate(objects):
        for key, item in value.items():
            column = columns.get(key)
            if column is None:
                columns[key] = [(place, item)]
            else:
                column.append((place, item))
    return columns


def _grouped(
    key_of: Callable[[Value], Hashable], column: list[tuple[int, Value]]
) -> dict[Hashable, tuple[Value, list[int]]]:
    groups: dict[Hashable, tuple[Value, list[int]]] = {}
    for place, value in column:
        key = key_of(value)
        group = groups.get(key)
        if group is None:
            groups[key] = value, [place]
        else:
            group[1].append(place)
    return groups
