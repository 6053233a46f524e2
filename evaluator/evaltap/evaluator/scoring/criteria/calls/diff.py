"""The differences between expected and actual tool calls, as data for reasons and reports."""

from collections.abc import Sequence
from typing import Final, Literal

from msgspec import Struct

from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.assignment import assign
from evaltap.evaluator.scoring.criteria.calls.pairs import NO_NAME, CallPairs
from evaltap.evaluator.scoring.criteria.calls.shape import Shape, Table, by_tool
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
        return _line(self.kind, self.name, self.changes)


def trajectory_diff(pairs: CallPairs) -> list[DiffRow]:
    """Return the rows of the difference, in the order of the actual calls.

    Calls are paired in order first; the remaining calls are paired in any order and count as moved.  A
    missing call is listed where it was expected.
    """
    rows = []
    for kind, one, other in pairs.shape.recall(_plan):
        has_both = one != _NONE and other != _NONE
        rows.append(
            DiffRow(
                kind,
                _name(pairs, one, other),
                None if one == _NONE else one,
                None if other == _NONE else other,
                pairs.table[one][other] if has_both else 0.0,
                _changes(pairs, one, other),
            )
        )
    return rows


def difference(pairs: CallPairs) -> str:
    """Return the difference as one line, with the first 8 calls at most; empty if there is none."""
    steps = pairs.shape.recall(_told)
    lines = [
        _line(kind, _name(pairs, one, other), _changes(pairs, one, other))
        for kind, one, other in steps[:_SHOWN]
    ]
    more = f"; and {len(steps) - _SHOWN} more" if len(steps) > _SHOWN else ""
    return "; ".join(lines) + more


def _line(kind: DiffKind, name: str, changes: Sequence[Change]) -> str:
    return f"{kind} {name} ({', '.join(map(str, changes))})" if changes else f"{kind} {name}"


def _name(pairs: CallPairs, one: int, other: int) -> str:
    return (pairs.found_names[other] if one == _NONE else pairs.wanted_names[one]) or NO_NAME


def _changes(pairs: CallPairs, one: int, other: int) -> tuple[Change, ...]:
    """Return how the arguments of two calls differ; nothing for a call without a partner."""
    if one == _NONE or other == _NONE or pairs.table[one][other] == 1:
        return ()
    return tuple([Change(*each) for each in pairs.changes(one, other)])


def _told(shape: Shape) -> Sequence[Step]:
    """Return the steps that the difference tells in words."""
    return [step for step in shape.recall(_plan) if step[0] != "same"]


def _plan(shape: Shape) -> Sequence[Step]:
    """Return the kind of each row, and the indexes of its expected and its actual call, or -1."""
    table, width = shape.table, shape.width
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
    unpaired = [one for one, other in enumerate(partner) if other < 0]
    pairs = []
    for found, ones in by_tool(table, unpaired).items():
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
    text = repr(_ordered(value) if isinstance(value, (dict, list)) else value)
    return text if len(text) <= 60 else f"{text[:60]}…"
