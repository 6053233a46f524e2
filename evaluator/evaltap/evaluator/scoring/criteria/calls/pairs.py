"""Pairs of actual and expected tool calls, and their similarity.

The similarity of two calls is 0 if their names differ, otherwise that of their arguments.  Calls therefore
fall into one block per tool, and nothing is computed across blocks.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

import orjson

from evaltap.evaluator.cases.outline import AnyCall, LazyCall
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.criteria.calls.similarity import FEW, Similarity
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Rows, Value
from evaltap.schemas.formats.criteria import ValueCriterion

Name: TypeAlias = str | None
Found = TypeVar("Found")
Rest = TypeVarTuple("Rest")
Table: TypeAlias = tuple[tuple[float, ...], ...]
"""The similarity of each reference call (a row) with each actual call."""

_SMALL: Final = 64  # cells of a table whose results are recalled
_RECALLED: Final = 2048
_EQUAL: Final = [[1.0]]

NO_NAME: Final = "(no name)"
OTHER_TOOL: Final = -1.0
"""Stands for the similarity of calls to different tools, where 0 means different arguments."""


class Once(Generic[Found]):
    """A property that is computed at most once.

    `functools.cached_property` does the same, but under Python 3.11 takes a lock, half a microsecond.
    """

    def __init__(self, compute: Callable[[Any], Found]) -> None:  # of the class that it stands in
        self._compute = compute
        self._name = compute.__name__
        self.__doc__ = compute.__doc__

    def __get__(self, owner: object, _: type) -> Found:
        found = owner.__dict__[self._name] = self._compute(owner)
        return found


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
        self._wanted = _names_and_bytes(reference)
        self._found = _names_and_bytes(actual)
        self.wanted_names = [name for name, _ in self._wanted]
        self.found_names = [name for name, _ in self._found]
        self._proven = similarity.proves({*self.wanted_names, *self.found_names})
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

    @Once
    def weights(self) -> Rows:
        """The similarity of each reference call (a row) with each actual call."""
        return [[0.0 if score == OTHER_TOOL else score for score in row] for row in self.table]

    @Once
    def assigned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in any order.

        Calls to one tool are paired even if their arguments have nothing in common.
        """
        if self.same:
            return [*range(len(self.reference))]
        chosen = [-1] * len(self.reference)
        for wanted, found, block in self._blocks:
            if len(wanted) == len(found) == 1:
                chosen[wanted[0]] = found[0]
                continue
            for one, column in enumerate(assign(block)):
                if column >= 0:
                    chosen[wanted[one]] = found[column]
        return chosen

    @Once
    def aligned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in order."""
        if self.same:
            return [*range(len(self.reference))]
        return align(self.table, len(self.actual))

    @Once
    def permuted(self) -> bool:
        """Whether equal bytes prove that both sides are the same calls, in any order."""
        return len(self._wanted) == len(self._found) and self._includes(self._found, self._wanted)

    @Once
    def assigned_total(self) -> float:
        """The greatest total similarity, in any order."""
        if self.permuted:
            return float(len(self.reference))
        return sum(self.scores(self.assigned))

    @Once
    def aligned_total(self) -> float:
        """The greatest total similarity, in order."""
        return sum(self.scores(self.aligned))

    @Once
    def table(self) -> Table:
        """The similarity of each reference call (a row) with each actual call; OTHER_TOOL for other tools."""
        rows = [[OTHER_TOOL] * len(self.actual) for _ in self.reference]
        for wanted, found, block in self._blocks:
            if len(wanted) == len(found) == 1:
                rows[wanted[0]][found[0]] = block[0][0]
                continue
            for one, scores in zip(wanted, block, strict=True):
                row = rows[one]
                for other, score in zip(found, scores, strict=True):
                    row[other] = score
        return tuple(map(tuple, rows))

    @Once
    def covers(self) -> bool:
        """Whether each reference call equals a different actual call."""
        if self.permuted or self._includes(self._found, self._wanted):
            return True
        for wanted, found, block in self._blocks:
            if len(wanted) == 1:
                if 1 not in block[0]:
                    return False
                continue
            edges = [[place for place, score in enumerate(row) if score == 1] for row in block]
            if match_left(len(wanted), len(found), edges.__getitem__).uncovered_left:
                return False
        return sum(len(wanted) for wanted, _, _ in self._blocks) == len(self.reference)

    @Once
    def covered(self) -> bool:
        """Whether each actual call equals a different reference call."""
        if self.permuted or self._includes(self._wanted, self._found):
            return True
        for wanted, found, block in self._blocks:
            if len(found) == 1:
                if [1] not in block:
                    return False
                continue
            edges = [
                [one for one, row in enumerate(block) if row[place] == 1]
                for place in range(len(found))
            ]
            if match_left(len(found), len(wanted), edges.__getitem__).uncovered_left:
                return False
        return sum(len(found) for _, found, _ in self._blocks) == len(self.actual)

    @Once
    def follows(self) -> bool:
        """Whether the reference is a subsequence of the actual calls."""
        left = iter(range(len(self.actual)))
        for one in range(len(self.reference)):
            for other in left:
                if self._alike(one, other):
                    break
            else:
                return False
        return True

    @Once
    def equals(self) -> bool:
        """Whether both sides are the same calls in the same order."""
        count = len(self.reference)
        return self.same or (
            count == len(self.actual) and all(map(self._alike, range(count), range(count)))
        )

    def _includes(self, calls: Sequence[Hashable], some: Sequence[Hashable]) -> bool:
        """Return whether equal bytes prove that each of some calls equals a different one of the calls."""
        if not self._proven or len(some) > len(calls):
            return False
        distinct = {*some}
        if not distinct.issubset(calls):
            return False
        return len(distinct) == len(some) or not Counter(some) - Counter(calls)

    def _alike(self, one: int, other: int) -> bool:
        """Return whether a reference call equals an actual call."""
        wanted, found = self._wanted[one], self._found[other]
        if wanted[0] != found[0]:
            return False
        return (self._proven and wanted == found) or self.table[one][other] == 1

    @Once
    def _blocks(self) -> list[tuple[list[int], list[int], Rows]]:
        """For each tool that both sides call: the indexes of its calls, and their similarity."""
        known, blocks = _places(self.found_names), []
        for name, ones in _places(self.wanted_names).items():
            others = known.get(name)
            if others is None:
                continue
            proven = self._proven and len(ones) == len(others) == 1
            if proven and self._wanted[ones[0]] == self._found[others[0]]:
                blocks.append((ones, others, _EQUAL))
            else:
                blocks.append((ones, others, self._block(name, ones, others)))
        return blocks

    def _block(self, name: str, ones: Sequence[int], others: Sequence[int]) -> Rows:
        similarity = self.similarity.of(name)
        proven = similarity.same_bytes_are_alike
        wanted, found = [self._wanted[one] for one in ones], [self._found[one] for one in others]
        if proven and wanted == found and wanted.count(wanted[0]) == len(wanted):
            return [[1.0] * len(others) for _ in ones]
        # Values with the same bytes are decoded once.
        calls = dict(zip(wanted, (self.reference[one] for one in ones), strict=True))
        calls |= zip(found, (self.actual[other] for other in others), strict=True)
        known = {key: call.get("arguments") for key, call in calls.items()}
        if len(ones) * len(others) > FEW:
            return similarity.matrix([known[key] for key in wanted], [known[key] for key in found])
        compare = similarity.compare
        return [
            [
                1.0 if proven and one == other else compare(known[one], known[other])
                for other in found
            ]
            for one in wanted
        ]


def recalled(
    compute: Callable[[Table, Unpack[Rest]], Found],
) -> Callable[[Table, Unpack[Rest]], Found]:
    """Recall the results of a function of small tables: the same few recur in most turns."""
    recall = lru_cache(maxsize=_RECALLED)(compute)

    def found(table: Table, *rest: *Rest) -> Found:
        cells = len(table) * len(table[0]) if table else 0
        return recall(table, *rest) if 0 < cells <= _SMALL else compute(table, *rest)

    return found


def _names_and_bytes(calls: Sequence[AnyCall]) -> list[tuple[Name, Hashable]]:
    return [
        (call.name, bytes(call.arguments)) if isinstance(call, LazyCall) else _of_decoded(call)
        for call in calls
    ]


def _of_decoded(call: dict[str, Any]) -> tuple[Name, Hashable]:
    try:
        return call.get("name"), orjson.dumps(call.get("arguments"))
    except orjson.JSONEncodeError:  # such as an integer beyond 64 bits
        return call.get("name"), object()


def _places(names: Sequence[Name]) -> dict[str, list[int]]:
    places: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name:
            places.setdefault(name, []).append(place)
    return places
