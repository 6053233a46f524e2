"""Test whether the mix of traffic changed between two periods: a permutation test over sessions.

The distance is the total variation ½Σ|a-b| of weighted shares.  It grows with little data and many values, so
it is compared with the distance expected if periods did not matter, by randomly assigning sessions, with all
their turns and weights, to the periods.  Needs numpy.
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from math import sqrt
from typing import Final

import numpy as np

from evaltap.evaluator.analysis.estimates.scope import SESSION
from evaltap.evaluator.analysis.stats.difference import benjamini_hochberg
from evaltap.evaluator.analysis.stats.rate import Z95
from evaltap.evaluator.curation.near import Numbers
from evaltap.evaluator.curation.values import Seen, values_of

PERMUTATIONS: Final = 2_000
AT_A_TIME: Final = 100
SHOWN_SHIFTS: Final = 10
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
    distance: float
    expected: float
    """The mean distance if periods do not matter."""
    p_value: float
    q_value: float
    """By Benjamini and Hochberg (1995), over the dimensions."""
    shifts: tuple[Shift, ...]

    def data(self) -> dict[str, object]:
        return {**asdict(self), "shifts": [shift.data() for shift in self.shifts]}


def drift(by: Sequence[str], before: Sequence[Seen], after: Sequence[Seen]) -> list[Drift]:
    """Return the change of the mix in each dimension; both periods must have turns."""
    found = [_drift(name, before, after) for name in by]
    return [
        replace(one, q_value=q)
        for one, q in zip(found, benjamini_hochberg([one.p_value for one in found]), strict=True)
    ]


def _drift(name: str, before: Sequence[Seen], after: Sequence[Seen]) -> Drift:
    together = [*before, *after]
    values, _ = values_of(name, together)
    weights: dict[str, float] = defaultdict(float)
    for turn, found in zip(together, values, strict=True):
        for value in found:
            weights[value] += 1 / turn.probability
    kept = sorted(weights, key=lambda value: (-weights[value], value))[:MOST_VALUES]
    columns = {value: at for at, value in enumerate(kept)}
    units: dict[tuple[bool, tuple[str, ...]], Numbers] = {}
    for at, (turn, found) in enumerate(zip(together, values, strict=True)):
        key = (at >= len(before), SESSION.of(turn.key))
        row = units.setdefault(key, np.zeros(len(kept) + 1))
        for value in found:
            row[columns.get(value, len(kept))] += 1 / turn.probability
    keys = sorted(units)
    table = np.array([units[key] for key in keys])
    is_after = np.array([key[0] for key in keys])
    distance = float(_distances(table, is_after[None, :])[0])
    rng = np.random.default_rng(20261121)
    found_distances = []
    for _ in range(PERMUTATIONS // AT_A_TIME):
        assigned = np.array([rng.permutation(is_after) for _ in range(AT_A_TIME)])
        found_distances.append(_distances(table, assigned))
    dealt = np.concatenate(found_distances)
    p_value = float((1 + np.count_nonzero(dealt >= distance - 1e-12)) / (1 + len(dealt)))
    shifts = _shifts(table, is_after, [*kept, OTHERS])
    return Drift(name, distance, float(dealt.mean()), p_value, p_value, shifts)


def _distances(table: Numbers, dealt: "np.typing.NDArray[np.bool_]") -> Numbers:
    """Return the distance under each assignment; a row of `dealt` marks the sessions of the later period."""
    after = dealt.astype(np.float64) @ table
    before = table.sum(axis=0) - after
    shares = [
        side / np.maximum(side.sum(axis=1, keepdims=True), 1e-300) for side in (before, after)
    ]
    distances: Numbers = 0.5 * np.abs(shares[0] - shares[1]).sum(axis=1)
    return distances


def _shifts(
    table: Numbers, is_after: "np.typing.NDArray[np.bool_]", names: Sequence[str]
) -> tuple[Shift, ...]:
    before, spread_before = _shares(table[~is_after])
    after, spread_after = _shares(table[is_after])
    found = []
    for at, name in enumerate(names):
        change = float(after[at] - before[at])
        reach = Z95 * sqrt(float(spread_before[at] + spread_after[at]))
        if before[at] or after[at]:
            low, high = max(-1.0, change - reach), min(1.0, change + reach)
            found.append(Shift(name, float(before[at]), float(after[at]), low, high))
    found.sort(key=lambda one: (-abs(one.after - one.before), one.value))
    return tuple(found[:SHOWN_SHIFTS])


def _shares(rows: Numbers) -> tuple[Numbers, Numbers]:
    """Return the shares of values, and their variances with sessions as clusters."""
    total = max(float(rows.sum()), 1e-300)
    shares = rows.sum(axis=0) / total
    residuals = rows - rows.sum(axis=1, keepdims=True) * shares
    count = len(rows)
    scale = count / (count - 1) if count > 1 else 1.0
    return shares, scale * (residuals**2).sum(axis=0) / total**2
