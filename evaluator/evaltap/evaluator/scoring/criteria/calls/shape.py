"""The shape of a comparison: which calls are alike and how much, without the calls and their names.

Most turns have one of few shapes, so what follows from a shape is computed once for all of them.
"""

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import lru_cache
from math import fsum
from typing import Any, Final, Generic, TypeAlias, TypeVar, TypeVarTuple, Unpack

from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.matching import match_left

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
    """The similarities of expected and actual calls; `shape_of` returns shared ones."""

    def __init__(self, table: Table, width: int) -> None:
        self.table = table
        """OTHER_TOOL for calls to other tools."""
        self.width = width
        """How many actual calls there are."""
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
        chosen = [-1] * len(self.table)
        for others, ones in by_tool(self.table, range(len(self.table))).items():
            block = [[self.table[one][other] for other in others] for one in ones]
            for one, column in zip(ones, assign(block), strict=True):
                if column >= 0:
                    chosen[one] = others[column]
        return chosen

    @Once
    def aligned(self) -> list[int]:
        """The actual call of each reference call, or -1: the greatest total, in order."""
        return align(self.table, self.width)

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
        return not match_left(len(edges), self.width, edges.__getitem__).uncovered_left

    @Once
    def covered(self) -> bool:
        """Whether each actual call equals a different reference call."""
        edges = [
            [one for one, row in enumerate(self.table) if row[place] == 1]
            for place in range(self.width)
        ]
        return not match_left(len(edges), len(self.table), edges.__getitem__).uncovered_left

    @Once
    def follows(self) -> bool:
        """Whether the reference is a subsequence of the actual calls."""
        left = iter(range(self.width))
        return all(any(row[other] == 1 for other in left) for row in self.table)

    @Once
    def equals(self) -> bool:
        """Whether both sides are the same calls in the same order."""
        count = len(self.table)
        return count == self.width and all(self.table[n][n] == 1 for n in range(count))


shared_shapes: Final = lru_cache(maxsize=_RECALLED)(Shape)
"""The shapes that were met last."""


def shape_of(table: Table, width: int) -> Shape:
    """Return the shape of a table with `width` columns, which is shared among comparisons of few calls."""
    make = shared_shapes if len(table) * width <= _SMALL else Shape
    return make(table, width)


def by_tool(table: Table, rows: Iterable[int]) -> dict[tuple[int, ...], list[int]]:
    """Return the reference calls among `rows` to each tool, by the indexes of the actual calls to it."""
    found: dict[tuple[int, ...], list[int]] = {}
    for one in rows:
        others = tuple([other for other, score in enumerate(table[one]) if score != OTHER_TOOL])
        if others:
            found.setdefault(others, []).append(one)
    return found


def places(names: Sequence[Name]) -> dict[str, list[int]]:
    """Return the indexes of each name; calls without a name have none."""
    found: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        if name:
            found.setdefault(name, []).append(place)
    return found
