"""Pairs of actual and expected tool calls, and their similarity.

The similarity of two calls is 0 if their names differ, otherwise that of their arguments.  Calls therefore
fall into one block per tool, and nothing is computed across blocks.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Sequence, Set
from functools import cached_property
from typing import Final, TypeAlias

import orjson

from evaltap.evaluator.cases.outline import AnyCall, LazyCall
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.criteria.calls.similarity import FEW, Similarity
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Rows, Value
from evaltap.schemas.formats.criteria import ValueCriterion

Name: TypeAlias = str | None

OTHER_TOOL: Final = -1.0
"""Stands for the similarity of calls to different tools, where 0 means different arguments."""


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

    def changes(self, reference: AnyCall, actual: AnyCall) -> list[tuple[str, Value, Value]]:
        """Return the argument paths in which two calls to one tool differ."""
        name = reference.get("name") or ""
        return self.of(name).changes(reference.get("arguments"), actual.get("arguments"))


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
        self._wanted = [*map(_name_and_bytes, reference)]
        self._found = [*map(_name_and_bytes, actual)]
        self._proven = similarity.proves({name for name, _ in (*self._wanted, *self._found)})
        """Whether equal bytes prove that calls are alike: they have names, and no patterns are compared."""
        self.same = self._proven and self._wanted == self._found
        """Whether they prove that both sides are the same calls in the same order."""

    def scores(self, chosen: Sequence[int]) -> list[float]:
        """Return the similarity of each reference call with its chosen actual call; 0 without one."""
        if self.same:
            return [1.0] * len(chosen)
        return [
            row[other] if other >= 0 else 0.0 for row, other in zip(self.table, chosen, strict=True)
        ]

    @cached_property
    def weights(self) -> Rows:
        """The similarity of each reference call (a row) with each actual call."""
        return [[0.0 if score == OTHER_TOOL else score for score in row] for row in self.table]

    @cached_property
    def assigned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in any order.

        Calls to one tool are paired even if their arguments have nothing in common.
        """
        if self.same:
            return [*range(len(self.reference))]
        chosen = [-1] * len(self.reference)
        for wanted, found, block in self._blocks:
            for one, column in enumerate(assign(block)):
                if column >= 0:
                    chosen[wanted[one]] = found[column]
        return chosen

    @cached_property
    def aligned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in order."""
        if self.same:
            return [*range(len(self.reference))]
        return align(self.table, len(self.actual))

    @cached_property
    def assigned_total(self) -> float:
        """The greatest total similarity, in any order."""
        return sum(self.scores(self.assigned))

    @cached_property
    def aligned_total(self) -> float:
        """The greatest total similarity, in order."""
        return sum(self.scores(self.aligned))

    def assigned_among(self, ones: Set[int], others: Set[int]) -> list[tuple[int, int]]:
        """Return pairs of some reference calls and some actual calls: the greatest total, in any order."""
        pairs = []
        for wanted, found, block in self._blocks:
            if ones.isdisjoint(wanted) or others.isdisjoint(found):
                continue
            rows = [row for row, one in enumerate(wanted) if one in ones]
            columns = [column for column, other in enumerate(found) if other in others]
            part = [[block[row][column] for column in columns] for row in rows]
            pairs += [
                (wanted[row], found[columns[column]])
                for row, column in zip(rows, assign(part), strict=True)
                if column >= 0
            ]
        return pairs

    @cached_property
    def table(self) -> Rows:
        """The similarity of each reference call (a row) with each actual call; OTHER_TOOL for other tools."""
        rows = [[OTHER_TOOL] * len(self.actual) for _ in self.reference]
        for wanted, found, block in self._blocks:
            for one, scores in zip(wanted, block, strict=True):
                row = rows[one]
                for other, score in zip(found, scores, strict=True):
                    row[other] = score
        return rows

    @cached_property
    def covers(self) -> bool:
        """Whether each reference call equals a different actual call."""
        if self._proven and _includes(self._found, self._wanted):
            return True
        for wanted, found, block in self._blocks:
            edges = [[place for place, score in enumerate(row) if score == 1] for row in block]
            if match_left(len(wanted), len(found), edges.__getitem__).uncovered_left:
                return False
        return sum(len(wanted) for wanted, _, _ in self._blocks) == len(self.reference)

    @cached_property
    def covered(self) -> bool:
        """Whether each actual call equals a different reference call."""
        if self._proven and _includes(self._wanted, self._found):
            return True
        for wanted, found, block in self._blocks:
            edges = [
                [one for one, row in enumerate(block) if row[place] == 1]
                for place in range(len(found))
            ]
            if match_left(len(found), len(wanted), edges.__getitem__).uncovered_left:
                return False
        return sum(len(found) for _, found, _ in self._blocks) == len(self.actual)

    @cached_property
    def follows(self) -> bool:
        """Whether the reference is a subsequence of the actual calls."""
        left = iter(range(len(self.actual)))
        return all(
            any(self._alike(one, other) for other in left) for one in range(len(self.reference))
        )

    @cached_property
    def equals(self) -> bool:
        """Whether both sides are the same calls in the same order."""
        count = len(self.reference)
        return self.same or (
            count == len(self.actual) and all(map(self._alike, range(count), range(count)))
        )

    def _alike(self, one: int, other: int) -> bool:
        """Return whether a reference call equals an actual call."""
        wanted, found = self._wanted[one], self._found[other]
        if wanted[0] != found[0]:
            return False
        return (self._proven and wanted == found) or self.table[one][other] == 1

    @cached_property
    def _blocks(self) -> list[tuple[list[int], list[int], Rows]]:
        """For each tool that both sides call: the indexes of its calls, and their similarity."""
        wanted, found = _places(self._wanted), _places(self._found)
        return [
            (ones, others, self._block(name, ones, others))
            for name, ones in wanted.items()
            if (others := found.get(name))
        ]

    def _block(self, name: str, ones: Sequence[int], others: Sequence[int]) -> Rows:
        similarity = self.similarity.of(name)
        proven = similarity.same_bytes_are_alike
        wanted, found = [self._wanted[one] for one in ones], [self._found[one] for one in others]
        if proven and wanted == found and wanted.count(wanted[0]) == len(wanted):
            return [[1.0] * len(others) for _ in ones]
        left = [self.reference[one].get("arguments") for one in ones]
        right = [self.actual[other].get("arguments") for other in others]
        if len(ones) * len(others) > FEW:
            return similarity.matrix(left, right)
        compare = similarity.compare
        return [
            [
                1.0 if proven and key == other else compare(value, argument)
                for other, argument in zip(found, right, strict=True)
            ]
            for key, value in zip(wanted, left, strict=True)
        ]


def _name_and_bytes(call: AnyCall) -> tuple[Name, Hashable]:
    if isinstance(call, LazyCall):
        return call.name, bytes(call.arguments)
    try:
        return call.get("name"), orjson.dumps(call.get("arguments"))
    except orjson.JSONEncodeError:  # such as an integer beyond 64 bits
        return call.get("name"), object()


def _includes(calls: Sequence[Hashable], some: Sequence[Hashable]) -> bool:
    """Return whether each of some calls equals a different one of the calls."""
    distinct = {*some}
    if not distinct.issubset(calls):
        return False
    return len(distinct) == len(some) or not Counter(some) - Counter(calls)


def _places(calls: Sequence[tuple[Name, Hashable]]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, (name, _) in enumerate(calls):
        if name:
            places.setdefault(name, []).append(place)
    return places
