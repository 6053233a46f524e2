"""Pairs of actual and expected tool calls, and their similarity.

The similarity of two calls is 0 if their names differ, otherwise that of their arguments.  Calls therefore
fall into one block per tool, and nothing is computed across blocks.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from typing import Any, Final

import orjson

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.scoring.criteria.calls.shape import (
    OTHER_TOOL,
    Name,
    Once,
    Shape,
    Table,
    places,
    shape_of,
)
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Rows, Value
from evaltap.schemas.formats.criteria import ValueCriterion

NO_NAME: Final = "(no name)"
_FEW_PAIRS: Final = 25
"""Up to this number, comparing each pair is faster than building columns for each tool."""


class CallSimilarity:
    """The similarity of two tool calls; compiled once, usable from any thread."""

    def __init__(
        self,
        arguments: ValueCriterion | None = None,
        by_tool: dict[str, ValueCriterion] | None = None,
    ) -> None:
        self._default = Similarity(arguments)
        self._by_tool = {name: Similarity(part) for name, part in (by_tool or {}).items()}

    def of(self, name: str) -> Similarity:
        """Return the comparison of arguments for calls to one tool."""
        return self._by_tool.get(name, self._default)

    def proves(self, names: Iterable[Name]) -> bool:
        """Return whether calls to these tools are alike if their arguments have equal bytes."""
        if not self._by_tool:
            return self._default.same_bytes_are_alike and all(names)
        return all(name and self.of(name).same_bytes_are_alike for name in names)

    def weight(self, reference: AnyCall, actual: AnyCall) -> float:
        """Return the similarity of two calls; a call without a name is similar to none."""
        name = reference.get("name")
        if not name or name != actual.get("name"):
            return 0.0
        return self.of(name).pair(reference.get("arguments"), actual.get("arguments"))


class CallPairs:
    """The calls of a reference against the actual calls; each result is computed at most once, on demand.

    Calls to one tool with equal bytes as arguments are alike, so these are not compared or even decoded.
    """

    def __init__(
        self, reference: Sequence[AnyCall], actual: Sequence[AnyCall], similarity: CallSimilarity
    ) -> None:
        self.reference = reference
        self.actual = actual
        self.similarity = similarity
        self._wanted = _names_and_bytes(reference)
        self._found = _names_and_bytes(actual)
        self.wanted_names = [name for name, _ in self._wanted]
        self.found_names = [name for name, _ in self._found]
        self._values: dict[Hashable, Value] = {}
        self._proven = similarity.proves(self.wanted_names) and similarity.proves(self.found_names)
        """Whether equal bytes prove that calls are alike: they have names, and no patterns are compared."""
        self.same = self._proven and self._wanted == self._found
        """Whether they prove that both sides are the same calls in the same order."""

    @Once
    def weights(self) -> Rows:
        """The similarity of each reference call (a row) with each actual call."""
        return [[0.0 if score == OTHER_TOOL else score for score in row] for row in self.table]

    @Once
    def assigned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in any order."""
        return [*range(len(self.reference))] if self.same else self.shape.assigned

    @Once
    def aligned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in order."""
        return [*range(len(self.reference))] if self.same else self.shape.aligned

    @Once
    def assigned_total(self) -> float:
        """The greatest total similarity, in any order."""
        return float(len(self.reference)) if self.permuted else self.shape.assigned_total

    @Once
    def aligned_total(self) -> float:
        """The greatest total similarity, in order."""
        return float(len(self.reference)) if self.same else self.shape.aligned_total

    @Once
    def permuted(self) -> bool:
        """Whether equal bytes prove that both sides are the same calls, in any order."""
        return len(self._wanted) == len(self._found) and self._includes(self._found, self._wanted)

    @Once
    def covers(self) -> bool:
        """Whether each reference call equals a different actual call."""
        return self.permuted or self._includes(self._found, self._wanted) or self.shape.covers

    @Once
    def covered(self) -> bool:
        """Whether each actual call equals a different reference call."""
        return self.permuted or self._includes(self._wanted, self._found) or self.shape.covered

    @Once
    def follows(self) -> bool:
        """Whether the reference is a subsequence of the actual calls."""
        return self.same or self.shape.follows

    @Once
    def equals(self) -> bool:
        """Whether both sides are the same calls in the same order."""
        return self.same or self.shape.equals

    @Once
    def shape(self) -> Shape:
        """Which calls are alike, and how much."""
        return shape_of(self.table, len(self.actual))

    @Once
    def table(self) -> Table:
        """The similarity of each reference call (a row) with each actual call; OTHER_TOOL for other tools."""
        if len(self.reference) * len(self.actual) <= _FEW_PAIRS:
            return tuple(map(self._row, range(len(self.reference))))
        rows = [[OTHER_TOOL] * len(self.actual) for _ in self.reference]
        known = places(self.found_names)
        for name, ones in places(self.wanted_names).items():
            if others := known.get(name):
                self._fill(rows, self.similarity.of(name), ones, others)
        return tuple(map(tuple, rows))

    def _row(self, one: int) -> tuple[float, ...]:
        """Return the similarity of a reference call with each actual call."""
        key, found = self._wanted[one], self._found
        if not (name := key[0]):
            return (OTHER_TOOL,) * len(found)
        similarity = self.similarity.of(name)
        proven, row = similarity.same_bytes_are_alike, []
        for other, other_key in enumerate(found):
            if other_key[0] != name:
                row.append(OTHER_TOOL)
            elif proven and key == other_key:
                row.append(1.0)
            else:
                row.append(
                    similarity.compare(
                        self._arguments(key, self.reference[one]),
                        self._arguments(other_key, self.actual[other]),
                    )
                )
        return tuple(row)

    def _fill(
        self, rows: Rows, similarity: Similarity, ones: Sequence[int], others: Sequence[int]
    ) -> None:
        """Set the similarities of calls to one tool."""
        wanted_keys, found_keys = self._wanted, self._found
        keys = {*map(wanted_keys.__getitem__, ones), *map(found_keys.__getitem__, others)}
        if similarity.same_bytes_are_alike and len(keys) == 1:
            block: Rows = [[1.0] * len(others)] * len(ones)
        else:
            wanted = [self._arguments(wanted_keys[one], self.reference[one]) for one in ones]
            found = [self._arguments(found_keys[other], self.actual[other]) for other in others]
            block = similarity.matrix(wanted, found)
        for one, scores in zip(ones, block, strict=True):
            row = rows[one]
            for other, score in zip(others, scores, strict=True):
                row[other] = score

    def changes(self, one: int, other: int) -> list[tuple[str, Value, Value]]:
        """Return the argument paths in which a reference call and an actual call to its tool differ."""
        return self.similarity.of(self.wanted_names[one] or "").changes(
            self._arguments(self._wanted[one], self.reference[one]),
            self._arguments(self._found[other], self.actual[other]),
        )

    def _arguments(self, key: tuple[Name, Hashable], call: AnyCall) -> Value:
        """Return the arguments of a call; those with the same bytes are decoded once."""
        text, known = key[1], self._values
        if text not in known:
            known[text] = call.get("arguments")
        return known[text]

    def _includes(self, calls: Sequence[Hashable], some: Sequence[Hashable]) -> bool:
        """Return whether equal bytes prove that each of some calls equals a different one of the calls."""
        if not self._proven or len(some) > len(calls):
            return False
        distinct = {*some}
        if not distinct.issubset(calls):
            return False
        return len(distinct) == len(some) or not Counter(some) - Counter(calls)


def _names_and_bytes(calls: Sequence[AnyCall]) -> list[tuple[Name, Hashable]]:
    return [
        _of_decoded(call) if isinstance(call, dict) else (call.name, bytes(call.arguments))
        for call in calls
    ]


def _of_decoded(call: dict[str, Any]) -> tuple[Name, Hashable]:
    try:
        return call.get("name"), orjson.dumps(call.get("arguments"))
    except orjson.JSONEncodeError:  # such as an integer beyond 64 bits
        return call.get("name"), object()
