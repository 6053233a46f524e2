"""Test whether the mix of traffic changed between two periods: a permutation test over sessions.

The distance is the total variation ½Σ|a-b| of weighted shares.  It grows with little data and many values, so
it is compared with the distance expected if periods did not matter, by randomly assigning sessions, with all
their turns and weights, to the periods.  Needs numpy.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import comb
from typing import Final

import numpy as np

from evaltap.evaluator.analysis.estimates.scope import SESSION
from evaltap.evaluator.analysis.stats.difference import benjamini_hochberg, difference
from evaltap.evaluator.curation.near import Numbers
from evaltap.evaluator.curation.values import Seen, pairs_of, shares_of, values_of

PERMUTATIONS: Final = 2_000
AT_A_TIME: Final = 100
SHOWN_SHIFTS: Final = 10
FEWEST_ASSIGNMENTS: Final = 20
"""With fewer ways to assign the sessions, no p-value is as small as 5 %."""
OTHERS: Final = "(others)"
MOST_VALUES: Final = 300
"""The number of values that are compared separately; rarer values are combined."""


@dataclass(frozen=True, slots=True)
class Shift:
    """The change of a value's share, with the 95 % interval of the difference."""

    value: str
    before: float
    after: float
    low: float
    high: float

    def data(self) -> dict[str, object]:
        return {**asdict(self), "is_new": self.before == 0}


@dataclass(frozen=True, slots=True)
class Drift:
    """The change of the mix in one dimension."""

    by: str
    sessions: tuple[int, int]
    """The sessions with a known value, before and after; a case of a set counts as one."""
    distance: float
    expected: float
    """The mean distance if periods do not matter."""
    p_value: float
    q_value: float
    """By Benjamini and Hochberg (1995), over the dimensions."""
    shifts: tuple[Shift, ...]

    @property
    def can_change(self) -> bool:
        """Whether there are enough sessions for any change to be significant."""
        before, after = self.sessions
        # With as many after as before, exchanging the periods is as far away.
        fewest = FEWEST_ASSIGNMENTS * (1 + (before == after))
        # So many of one period are enough: the number for all of them has thousands of digits.
        some, others = min(before, fewest), min(after, fewest)
        return comb(some + others, some) >= fewest

    def data(self) -> dict[str, object]:
        return {**asdict(self), "shifts": [shift.data() for shift in self.shifts]}


def drift(by: Sequence[str], before: Sequence[Seen], after: Sequence[Seen]) -> list[Drift]:
    """Return the change of the mix in each dimension of which both periods have known values."""
    found = [one for name in by if (one := _drift(name, before, after))]
    return [
        replace(one, q_value=q)
        for one, q in zip(found, benjamini_hochberg([one.p_value for one in found]), strict=True)
    ]


def _drift(name: str, before: Sequence[Seen], after: Sequence[Seen]) -> Drift | None:
    values, _ = values_of(name, [*before, *after])
    sides = [pairs_of(before, values[: len(before)]), pairs_of(after, values[len(before) :])]
    if not all(sides):
        return None
    weights: dict[str, float] = defaultdict(float)
    for turn, value in (*sides[0], *sides[1]):
        weights[value] += 1 / turn.probability
    kept = sorted(weights, key=lambda value: (-weights[value], value))[:MOST_VALUES]
    columns = {value: at for at, value in enumerate(kept)}
    units: dict[tuple[int, tuple[str, ...]], Numbers] = {}
    for number, pairs in enumerate(sides):
        for turn, value in pairs:
            row = units.setdefault((number, SESSION.of(turn.key)), np.zeros(len(kept) + 1))
            row[columns.get(value, len(kept))] += 1 / turn.probability
    keys = sorted(units)
    table = np.array([units[key] for key in keys])
    is_after = np.array([number == 1 for number, _ in keys])
    distance = float(_distances(table, is_after[None, :])[0])
    rng = np.random.default_rng(20261121)
    found_distances = []
    for _ in range(PERMUTATIONS // AT_A_TIME):
        assigned = np.array([rng.permutation(is_after) for _ in range(AT_A_TIME)])
        found_distances.append(_distances(table, assigned))
    dealt = np.concatenate(found_distances)
    p_value = float((1 + np.count_nonzero(dealt >= distance - 1e-12)) / (1 + len(dealt)))
    later = int(is_after.sum())
    shares = [_shares(table[~is_after]), _shares(table[is_after])]
    return Drift(
        name,
        (len(keys) - later, later),
        distance,
        float(dealt.mean()),
        p_value,
        p_value,
        _shifts(sides, [*kept, OTHERS], shares[1] - shares[0], set(kept)),
    )


def _shares(rows: Numbers) -> Numbers:
    shares: Numbers = rows.sum(axis=0) / rows.sum()
    return shares


def _shifts(
    sides: Sequence[Sequence[tuple[Seen, str]]],
    names: Sequence[str],
    changes: Numbers,
    kept: set[str],
) -> tuple[Shift, ...]:
    """Return the largest changes, each with its interval."""
    largest = sorted(range(len(names)), key=lambda at: (-abs(float(changes[at])), names[at]))
    shown = [names[at] for at in largest[:SHOWN_SHIFTS]]
    before, after = (
        shares_of(
            ((turn, value if value in kept else OTHERS) for turn, value in pairs),
            [{name} for name in shown],
        )
        for pairs in sides
    )
    found = []
    for name, old, new in zip(shown, before, after, strict=True):
        # Both sides have turns; only "(others)" may have none.
        if old and new and old.rate.value + new.rate.value:
            interval = difference(new.rate, old.rate).interval
            found.append(Shift(name, old.rate.value, new.rate.value, *interval))
    return tuple(found)


def _distances(table: Numbers, dealt: "np.typing.NDArray[np.bool_]") -> Numbers:
    """Return the distance under each assignment; a row of `dealt` marks the sessions of the later period."""
    after = dealt.astype(np.float64) @ table
    before = table.sum(axis=0) - after
    shares = [
        side / np.maximum(side.sum(axis=1, keepdims=True), 1e-300) for side in (before, after)
    ]
    distances: Numbers = 0.5 * np.abs(shares[0] - shares[1]).sum(axis=1)
    return distances
