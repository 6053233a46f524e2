"""The differences between expected and actual tool calls, as data for reasons and reports."""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.pairs import NO_NAME, CallPairs
from evaltap.evaluator.scoring.criteria.calls.shape import OTHER_TOOL, Shape, Table
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Value

DiffKind = Literal["same", "changed", "moved", "missing", "extra"]
Step = tuple[DiffKind, int, int]

_SHOWN: Final = 8
_HINT: Final = 1e-6
_NONE: Final = -1


class Change(Struct, frozen=True):
    """One argument path with its expected and actual value; `...` stands for a missing value."""

    path: str
    expected: Value
    actual: Value

    def __str__(self) -> str:
        return (
            f"{self.path or 'value'}: expected {_shown(self.expected)}, found {_shown(self.actual)}"
        )


class DiffRow(Struct, frozen=True):
    """One call on one or both sides; an index is None if the side has no such call.

    same: equal and in order; changed: same tool and in order, with other arguments; moved: a pair out of
    order, possibly with `changes`; missing: only expected; extra: only actual.
    """

    kind: DiffKind
    name: str
    expected: int | None
    actual: int | None
    similarity: float
    changes: tuple[Change, ...] = ()

    def __str__(self) -> str:
        if self.kind in ("missing", "extra"):
            return f"{self.kind} {self.name}"
        listed = ", ".join(map(str, self.changes))
        return f"{self.kind} {self.name}" + (f" ({listed})" if listed else "")


_ALIKE: Final[tuple[Change, ...]] = ()


def trajectory_diff(pairs: CallPairs) -> list[DiffRow]:
    """Return the rows of the difference, in the order of the actual calls.

    Calls are paired in order first; the remaining calls are paired in any order and count as moved.  A
    missing call is listed where it was expected.
    """
    shape, rows = pairs.shape, []
    for kind, one, other in shape.recall(_plan):
        changes = _ALIKE
        if _differ(shape, one, other):
            changes = tuple(Change(*each) for each in pairs.changes(one, other))
        rows.append(_row((kind, one, other), shape, changes))
    return rows


def difference(pairs: CallPairs) -> str:
    """Return the difference as one line, as `describe` does."""
    if pairs.shape.recall(has_changes):
        return describe(trajectory_diff(pairs))
    return pairs.shape.recall(_of_names)


def has_changes(shape: Shape) -> bool:
    """Return whether paired calls differ in their arguments, so that the difference lists values."""
    return any(_differ(shape, one, other) for _, one, other in shape.recall(_plan))


def _differ(shape: Shape, one: int, other: int) -> bool:
    """Return whether these are two calls, with different arguments."""
    return one >= 0 and other >= 0 and shape.table[one][other] < 1


def _of_names(shape: Shape) -> str:
    """Return the difference of calls that are only moved, missing or extra."""
    return describe([_row(step, shape, _ALIKE) for step in shape.recall(_plan)])


def _row(step: Step, shape: Shape, changes: tuple[Change, ...]) -> DiffRow:
    kind, one, other = step
    if one == _NONE:
        return DiffRow(kind, shape.found[other] or NO_NAME, None, other, 0.0)
    name = shape.wanted[one] or NO_NAME
    if other == _NONE:
        return DiffRow(kind, name, one, None, 0.0)
    return DiffRow(kind, name, one, other, shape.table[one][other], changes)


def describe(rows: list[DiffRow]) -> str:
    """Return the differences as one line, at most the first 8; empty if there are none."""
    lines = [str(row) for row in rows if row.kind != "same"]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more


def _plan(shape: Shape) -> Sequence[Step]:
    """Return the kind of each row, and the indexes of its expected and its actual call, or -1."""
    table, width = shape.table, len(shape.found)
    kinds: list[DiffKind] = ["missing"] * len(table)
    partner = _in_order(table, width)
    for one, other in enumerate(partner):
        if other >= 0:
            kinds[one] = "same" if table[one][other] == 1 else "changed"
    for one, other in _pair_anywhere(table, partner):
        partner[one], kinds[one] = other, "moved"
    by_actual = {other: one for one, other in enumerate(partner) if other >= 0}
    steps: list[Step] = []
    waiting = 0
    for other in range(width):
        one = by_actual.get(other, _NONE)
        if one == _NONE:
            steps.append(("extra", _NONE, other))
            continue
        if kinds[one] != "moved":
            steps += _missing(kinds, waiting, one)
            waiting = one + 1
        steps.append((kinds[one], one, other))
    return [*steps, *_missing(kinds, waiting, len(kinds))]


def _missing(kinds: Sequence[DiffKind], first: int, end: int) -> list[Step]:
    return [("missing", one, _NONE) for one in range(first, end) if kinds[one] == "missing"]


def _in_order(table: Table, width: int) -> list[int]:
    """Align the calls; two calls to one tool are paired even if their arguments have nothing in common."""
    # The weight of calls to other tools remains negative, so these are never paired.
    weights = [[1.0 - (1.0 - score) + _HINT for score in row] for row in table]
    return align(weights, width)


def _pair_anywhere(table: Table, partner: list[int]) -> list[tuple[int, int]]:
    """Return pairs among the unpaired calls, by greatest similarity."""
    by_tool: dict[tuple[int, ...], list[int]] = {}
    for one, other in enumerate(partner):
        if other < 0:
            found = tuple(c for c, score in enumerate(table[one]) if score != OTHER_TOOL)
            by_tool.setdefault(found, []).append(one)
    pairs = []
    for found, ones in by_tool.items():
        others = [other for other in found if other not in partner]
        part = [[table[one][other] for other in others] for one in ones]
        pairs += [
            (one, others[column])
            for one, column in zip(ones, assign(part), strict=True)
            if column >= 0
        ]
    return pairs


def _ordered(value: Value) -> Value:
    """Return a value with sorted keys: those of an outline have the order of its bytes."""
    if isinstance(value, dict):
        return {key: _ordered(value[key]) for key in sorted(value)}
    return [_ordered(one) for one in value] if isinstance(value, list) else value


def _shown(value: Value) -> str:
    if value is ...:
        return "nothing"
    if isinstance(value, str):
        return quoted(value, 60)
    text = repr(_ordered(value))
    return text if len(text) <= 60 else f"{text[:60]}…"
