"""The similarity of two JSON values, from 0 to 1, for arguments, results and states.

The similarity of two objects is the weighted mean over their keys; any other values are equal or not. Numbers
are equal by value (1 and 1.0), a boolean is never a number, and a string is a number only if the criterion
coerces it. An eval set keeps an integer beyond 2^53 as the nearest double: as a reference, that one equals
all integers that are kept so. `Similarity.pair` is the definition; `Similarity.matrix` computes the same for
many values, key by key instead of pair by pair.
"""

from collections.abc import Sequence
from typing import Final

import orjson

from evaltap.evaluator.scoring.criteria.calls.comparison import (
    PLAIN,
    Comparison,
    compile_comparison,
)
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import (
    VETO,
    Object,
    Rows,
    Value,
    similarity_rows,
)
from evaltap.schemas.files.canonical import format_number
from evaltap.schemas.formats.criteria import ValueCriterion

_EXACT: Final = 2**53
_LARGEST: Final = 10**21
"""From here on, numbers are written with an exponent."""
_FEW: Final = 9  # up to this number of pairs, comparing each is faster than building columns


class Similarity:
    """A compiled `ValueCriterion`; usable from any thread.

    Raises MetricError if the criterion is invalid.
    """

    def __init__(self, criterion: ValueCriterion | None) -> None:
        self._root = compile_comparison(criterion or ValueCriterion())
        mode = self._root.mode
        # A pattern need not match itself; any other value equals itself.
        paths = criterion.paths if criterion else ()
        self.same_bytes_are_alike = all(rule.match != "regex" for rule in paths)
        self.ignores_values = mode == "ignore"
        self._counts_missing = mode != "subset"
        self._counts_extra = mode != "superset"
        self._counts_all = self._counts_missing and self._counts_extra
        self._plain = self._is_plain(self._root) and not self._root.whole
        self._selects = self._root.selects_below

    def pair(self, reference: Value, actual: Value) -> float:
        """Return the similarity of two values; exactly 1 if and only if no compared part differs."""
        if self.same_bytes_are_alike and _same_bytes(reference, actual):
            return 1.0
        return self.compare(reference, actual)

    def compare(self, reference: Value, actual: Value) -> float:
        """Return what `pair` returns, without expecting that most values are equal."""
        if self.ignores_values:
            return 1.0
        root, reference, actual = self._root, self._read(reference), self._read(actual)
        if self._plain and type(reference) is dict and type(actual) is dict:  # most calls
            score = self._plain_score(root.default, reference, actual)
        else:
            score = self._outer_score(root, reference, actual)
        if score < 1 and _is_rounded(reference):
            score = self._outer_score(root, _rounded(reference), _rounded(actual))
        return score if score > 0 else 0.0

    def _read(self, value: Value) -> Value:
        """Return what is compared of a value.  Missing arguments count as empty: recorders write either."""
        if self._selects and type(value) is dict:
            value = self._root.selected(value)
        return {} if value is None else value

    def _outer_score(self, root: Comparison, reference: Value, actual: Value) -> float:
        if type(reference) is dict and type(actual) is dict and not root.whole:
            return self._object_score(root, reference, actual)
        return self._score(root, reference, actual)

    def matrix(self, references: Sequence[Value], actuals: Sequence[Value]) -> Rows:
        """Return the similarity of each reference (a row) with each actual value."""
        if self.ignores_values:
            return [[1.0] * len(actuals) for _ in references]
        if len(references) * len(actuals) <= _FEW:
            return [[self.pair(one, other) for other in actuals] for one in references]
        references, actuals = [*map(self._read, references)], [*map(self._read, actuals)]
        rows = similarity_rows(self._root, references, actuals, self._score, self._counts)
        return [
            [self.compare(one, other) for other in actuals]
            if _is_rounded(one)
            else [value if value > 0 else 0.0 for value in row]
            for one, row in zip(references, rows, strict=True)
        ]

    def changes(self, reference: Value, actual: Value) -> list[tuple[str, Value, Value]]:
        """Return the differences as (path, reference, actual), with `...` for a missing value."""
        if self.ignores_values:
            return []
        return [*self._changes(self._root, "", self._read(reference), self._read(actual))]

    def _score(self, node: Comparison, reference: Value, actual: Value) -> float:
        score = self._raw_score(node, reference, actual)
        return VETO if score < 1 and node.required else score

    def _raw_score(self, node: Comparison, reference: Value, actual: Value) -> float:
        if not node.whole:
            if type(reference) is dict and type(actual) is dict:
                return self._object_score(node, reference, actual)
            if node.differs and type(reference) is list and type(actual) is list:
                return self._list_score(node, reference, actual)
        return 1.0 if node.equal(reference, actual) else 0.0

    def _object_score(self, node: Comparison, reference: Object, actual: Object) -> float:
        if self._is_plain(node):
            return self._plain_score(node.default, reference, actual)
        total = score = 0.0
        part, own = node.default, node.differs
        for key in {**reference, **actual}:
            if own:
                part = node.part(key)
            if part.ignore:
                continue
            if key in reference and key in actual:
                total += part.weight
                one, other = reference[key], actual[key]
                kind = type(one)
                if kind in PLAIN and kind is type(other) and part.plain:  # most values
                    alike = 1.0 if one == other else VETO if part.required else 0.0
                else:
                    alike = self._score(part, one, other)
                score += part.weight * alike
            elif self._counts(node, key in reference, key in actual):
                total += part.weight
                if part.required:
                    return VETO
        return _share(score, total)

    def _is_plain(self, node: Comparison) -> bool:
        """Return whether no rule applies to the keys of an object."""
        return node.plain and not node.differs and (node is not self._root or self._counts_all)

    def _plain_score(self, part: Comparison, reference: Object, actual: Object) -> float:
        """Return the share of keys with equal values, where no rule applies."""
        score, keys = 0.0, len(actual)
        for key, one in reference.items():
            if key not in actual:
                keys += 1
                continue
            other = actual[key]
            kind = type(one)
            if kind in PLAIN and kind is type(other):  # most values
                if one == other:
                    score += 1.0
            elif kind is dict and type(other) is dict:
                score += self._plain_score(part, one, other)
            elif part.equal(one, other):
                score += 1.0
        return score / keys if keys else 1.0

    def _list_score(self, node: Comparison, reference: list[Value], actual: list[Value]) -> float:
        total = score = 0.0
        shorter, longer = sorted((len(reference), len(actual)))
        for place in range(longer):
            part = node.part(str(place))
            if part.ignore:
                continue
            total += part.weight
            if place < shorter:
                score += part.weight * self._score(part, reference[place], actual[place])
            elif part.required:
                return VETO
        return _share(score, total)

    def _counts(self, node: Comparison, wanted: bool, found: bool) -> bool:
        """Return whether a key counts, given which sides have it.

        The modes subset and superset ignore keys of only one side in the outermost object.
        """
        if node is not self._root or (wanted and found):
            return True
        return self._counts_missing if wanted else self._counts_extra

    def _changes(
        self, node: Comparison, path: str, reference: Value, actual: Value
    ) -> list[tuple[str, Value, Value]]:
        both = type(reference) is dict and type(actual) is dict and not node.whole
        if not both:
            score = self._raw_score(node, reference, actual)
            if score < 1 and _is_rounded(reference):
                score = self._raw_score(node, _rounded(reference), _rounded(actual))
            return [] if score == 1 else [(path, reference, actual)]
        found: list[tuple[str, Value, Value]] = []
        part, own = node.default, node.differs
        for key in (*sorted(reference), *sorted(actual.keys() - reference.keys())):
            one, other = reference.get(key, ...), actual.get(key, ...)
            if own:
                part = node.part(key)
            if type(one) in PLAIN and type(one) is type(other) and one == other and part.plain:
                continue  # most values
            weightless = not part.weight and not part.required
            if part.ignore or weightless or not self._counts(node, key in reference, key in actual):
                continue
            inner = f"{path}.{key}" if path else key
            if one is ... or other is ...:
                found.append((inner, one, other))
            else:
                found += self._changes(part, inner, one, other)
        return found


def _share(score: float, total: float) -> float:
    # A weight of 0 times a veto is NaN, and must remain a veto.
    if score != score or score == VETO:
        return VETO
    return score / total if total else 1.0


def _same_bytes(one: Value, other: Value) -> bool:
    try:
        return orjson.dumps(one) == orjson.dumps(other)
    except orjson.JSONEncodeError:  # an integer beyond 64 bits
        return False


def _is_rounded(value: Value) -> bool:
    """Return whether a value has a number that an eval set may keep in place of an integer beyond 2^53."""
    kind = type(value)
    if kind is dict or kind is list:
        for one in value.values() if kind is dict else value:
            inner = type(one)
            if inner is str or inner is bool or (inner is int and -_EXACT < one < _EXACT):
                continue  # most values
            if _is_rounded(one):
                return True
        return False
    if kind is int:
        return _EXACT <= abs(value) < _LARGEST and format_number(value) == str(value)
    return kind is float and abs(value) >= _LARGEST


def _rounded(value: Value) -> Value:
    """Return a value with its integers beyond 2^53 as doubles."""
    kind = type(value)
    if kind is int and abs(value) > _EXACT:
        try:
            return float(value)
        except OverflowError:  # beyond the range of doubles, which no eval set keeps
            return value
    if kind is dict:
        return {key: _rounded(item) for key, item in value.items()}
    return [*map(_rounded, value)] if kind is list else value
