"""The shape of a comparison: which calls are alike and how much, without the calls themselves.

Most turns have one of few shapes, so what follows from a shape is computed once for all of them.
"""

from collections.abc import Callable, Hashable, Sequence
from functools import lru_cache
from math import fsum
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.matching import match_left
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Rows

Name: TypeAlias = str | None
Found = TypeVar("Found")
Rest = TypeVarTuple("Rest")
Table: TypeAlias = tuple[tuple[float, ...], ...]
"""The similarity of each reference call (a row) with each actual call."""

_SMALL: Final = 64  # cells of a table whose shape is recalled
_RECALLED: Final = 2048

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


class Shape:
    """The names of expected and actual calls and their similarities; `shape_of` returns shared ones."""

    def __init__(self, table: Table, wanted: Sequence[Name], found: Sequence[Name]) -> None:
        self.table = table
        """OTHER_TOOL for calls to other tools."""
        self.wanted = wanted
        self.found = found
        self._recalled: dict[Hashable, Any] = {}  # whatever `recall` computes

    def recall(self, compute: Callable[["Shape", Unpack[Rest]], Found], *settings: *Rest) -> Found:
        """Return what a function finds for this shape with these settings; it runs once."""
        key = compute, *settings
        result: Found | None = self._recalled.get(key)
        if result is None:
            result = self._recalled[key] = compute(self, *settings)
        return result

    def scores(self, chosen: Sequence[int]) -> list[float]:
        """Return the similarity of each reference call with its chosen actual call; 0 without one."""
        return [
            row[other] if other >= 0 else 0.0 for row, other in zip(self.table, chosen, strict=True)
        ]

    @Once
    def assigned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in any order.

        Calls to one tool are paired even if their arguments have nothing in common.
        """
        chosen = [-1] * len(self.wanted)
        for wanted, found, block in self._blocks:
            for one, column in zip(wanted, assign(block), strict=True):
                if column >= 0:
                    chosen[one] = found[column]
        return chosen

    @Once
    def aligned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in order."""
        return align(self.table, len(self.found))

    @Once
    def assigned_total(self) -> float:
        """The greatest total similarity, in any order."""
        return fsum(self.scores(self.assigned))

    @Once
    def aligned_total(self) -> float:
        """The greatest total similarity, in order."""
        return fsum(self.scores(self.aligned))

    @Once
    def covers(self) -> bool:
        """Whether each reference call equals a different actual call."""
        edges = [[place for place, score in enumerate(row) if score == 1] for row in self.table]
        return not match_left(len(edges), len(self.found), edges.__getitem__).uncovered_left

    @Once
    def covered(self) -> bool:
        """Whether each actual call equals a different reference call."""
        columns = range(len(self.found))
        edges = [
            [one for one, row in enumerate(self.table) if row[place] == 1] for place in columns
        ]
        return not match_left(len(edges), len(self.wanted), edges.__getitem__).uncovered_left

    @Once
    def follows(self) -> bool:
        """Whether the reference is a subsequence of the actual calls."""
        left = iter(range(len(self.found)))
        return all(any(row[other] == 1 for other in left) for row in self.table)

    @Once
    def equals(self) -> bool:
        """Whether both sides are the same calls in the same order."""
        count = len(self.wanted)
        return count == len(self.found) and all(self.table[n][n] == 1 for n in range(count))

    @Once
    def _blocks(self) -> list[tuple[list[int], list[int], Rows]]:
        """For each tool that both sides call: the indexes of its calls, and their similarity."""
        known = places(self.found)
        return [
            (ones, known[name], [[self.table[one][other] for other in known[name]] for one in ones])
            for name, ones in places(self.wanted).items()
            if name in known
        ]


shared_shapes: Final = lru_cache(maxsize=_RECALLED)(Shape)
"""The shapes that were met last."""


def shape_of(table: Table, wanted: Sequence[Name], found: Sequence[Name]) -> Shape:
    """Return the shape of a table, which is shared among comparisons of few calls."""
    make = shared_shapes if len(wanted) * len(found) <= _SMALL else Shape
    return make(table, tuple(wanted), tuple(found))


def places(names: Sequence[Name]) -> dict[str, list[int]]:
    """Return the indexes of each name; calls without a name have none."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name:
            found.setdefault(name, []).append(place)
    return found
