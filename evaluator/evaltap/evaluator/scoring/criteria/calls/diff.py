"""The differences between expected and actual tool calls, as data for reasons and reports."""

from typing import Final, Literal

from msgspec import Struct

from evaltap.evaluator.cases.outline import AnyCall
from evaltap.evaluator.cases.text import quoted
from evaltap.evaluator.scoring.criteria.calls.alignment import align
from evaltap.evaluator.scoring.criteria.calls.pairs import OTHER_TOOL, CallPairs
from evaltap.evaluator.scoring.criteria.calls.similarity_matrix import Value

DiffKind = Literal["same", "changed", "moved", "missing", "extra"]

_SHOWN: Final = 8
_HINT: Final = 1e-6


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


def trajectory_diff(pairs: CallPairs) -> list[DiffRow]:
    """Return the rows of the difference, in the order of the actual calls.

    Calls are paired in order first; the remaining calls are paired in any order and count as moved.  A
    missing call is listed where it was expected.
    """
    kinds: list[DiffKind] = ["missing"] * len(pairs.reference)
    partner = _in_order(pairs)
    for one, other in enumerate(partner):
        if other >= 0:
            kinds[one] = "same" if pairs.table[one][other] == 1 else "changed"
    for one, other in _pair_anywhere(pairs, partner):
        partner[one], kinds[one] = other, "moved"
    by_actual = {other: one for one, other in enumerate(partner) if other >= 0}
    rows: list[DiffRow] = []
    waiting = 0
    for other in range(len(pairs.actual)):
        one = by_actual.get(other, -1)
        if one < 0:
            rows.append(DiffRow("extra", _name(pairs.actual[other]), None, other, 0.0))
            continue
        if kinds[one] != "moved":
            rows += _missing(pairs, kinds, range(waiting, one))
            waiting = one + 1
        rows.append(_paired(pairs, kinds[one], one, other))
    return [*rows, *_missing(pairs, kinds, range(waiting, len(kinds)))]


def describe(rows: list[DiffRow]) -> str:
    """Return the differences as one line, at most the first 8; empty if there are none."""
    lines = [str(row) for row in rows if row.kind != "same"]
    more = f"; and {len(lines) - _SHOWN} more" if len(lines) > _SHOWN else ""
    return "; ".join(lines[:_SHOWN]) + more


def _in_order(pairs: CallPairs) -> list[int]:
    """Align the calls; two calls to one tool are paired even if their arguments have nothing in common."""
    weights = [
        [0.0 if score == OTHER_TOOL else 1.0 - (1.0 - score) + _HINT for score in row]
        for row in pairs.table
    ]
    return align(weights, len(pairs.actual))


def _pair_anywhere(pairs: CallPairs, partner: list[int]) -> list[tuple[int, int]]:
    """Return pairs among the unpaired calls, by greatest similarity."""
    ones = {one for one, other in enumerate(partner) if other < 0}
    others = {*range(len(pairs.actual))}.difference(partner) if ones else ones
    return pairs.assigned_among(ones, others) if others else []


def _paired(pairs: CallPairs, kind: DiffKind, one: int, other: int) -> DiffRow:
    call, found = pairs.reference[one], pairs.actual[other]
    weight = pairs.table[one][other]
    changes = pairs.similarity.changes(call, found) if weight < 1 else []
    return DiffRow(kind, _name(call), one, other, weight, tuple(Change(*each) for each in changes))


def _missing(pairs: CallPairs, kinds: list[DiffKind], places: range) -> list[DiffRow]:
    return [
        DiffRow("missing", _name(pairs.reference[one]), one, None, 0.0)
        for one in places
        if kinds[one] == "missing"
    ]


def _name(call: AnyCall) -> str:
    return call.get("name") or "(no name)"


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
