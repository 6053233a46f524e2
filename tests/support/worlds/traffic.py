"""Traffic with a known pass rate, and samples of it, which estimates must recover, without code of the
product.

Each session passes with its own probability (beta-distributed around the rate), so its turns resemble each
other by `correlation`.  A turn is flagged, as an error would be, more often when it fails; the rule keeps
flagged turns with more probability than the head rate, the session has one draw.
"""

from collections import Counter
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import scipy  # type: ignore[import-untyped]  # scipy ships no types

Numbers = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Setting:
    """How traffic is, and how it is sampled."""

    turns: int
    longest: int = 1
    """Sessions have 1 to so many turns, evenly."""
    rate: float = 0.9
    correlation: float = 0.0
    head: float = 1.0
    rule: float = 0.0
    """With which probability the rule keeps a flagged turn; 0: no rule."""
    whole: bool = False
    """A rule that holds for a turn holds for its session."""
    scored: float = 1.0
    """The share of the recorded turns that is scored."""
    by_turn: bool = True
    """Whether the second draw is one for each turn, not one for the session."""
    limited: bool = False
    """A rate limit thins out each turn with a share of its own."""


class Drawn(NamedTuple):
    """The turns that were scored, and the truth of the traffic that they are from."""

    session: npt.NDArray[np.int64]
    recorded: Numbers
    scored: Numbers
    passed: Numbers
    truth: float


def draw(setting: Setting, rng: np.random.Generator) -> Drawn:
    """Return a sample of new traffic."""
    count = max(2, round(setting.turns / ((1 + setting.longest) / 2)))
    lengths = rng.integers(1, setting.longest + 1, size=count)
    rate, rho = setting.rate, setting.correlation
    chance = np.full(count, rate)
    if rho:
        chance = rng.beta(rate * (1 - rho) / rho, (1 - rate) * (1 - rho) / rho, size=count)
    session = np.repeat(np.arange(count), lengths)
    passed = rng.random(len(session)) < chance[session]
    recorded = _probabilities(setting, session, passed, rng)
    # One draw for the session and, where a limit thins out, one more for each turn.
    shares = rng.choice(np.linspace(0.3, 1, 30), len(session)) if setting.limited else 1.0
    kept = (rng.random(count)[session] < recorded) & (rng.random(len(session)) < shares)
    again = rng.random(len(session)) if setting.by_turn else rng.random(count)[session]
    kept &= again < setting.scored
    recorded = recorded * shares
    scored = np.full(int(kept.sum()), setting.scored)
    return Drawn(
        session[kept], recorded[kept], scored, passed[kept].astype(float), float(passed.mean())
    )


def _probabilities(
    setting: Setting,
    session: npt.NDArray[np.int64],
    passed: npt.NDArray[np.bool_],
    rng: np.random.Generator,
) -> Numbers:
    flagged = rng.random(len(session)) < np.where(passed, 0.05, 0.7)
    if setting.whole:
        flagged = np.isin(session, session[flagged])
    return np.where(flagged, max(setting.rule, setting.head), setting.head)


def cells_of(drawn: Drawn) -> Counter[tuple[tuple[float, float, int, float], ...]]:
    """Return sessions as cells (probabilities, turns, passes), alike ones counted together."""
    sessions: dict[int, dict[tuple[float, float], list[float]]] = {}
    for at, p1, p2, passed in zip(*(column.tolist() for column in drawn[:4]), strict=True):
        cell = sessions.setdefault(at, {}).setdefault((p1, p2), [0, 0.0])
        cell[0] += 1
        cell[1] += passed
    return Counter(
        tuple(sorted((*key, int(n), total) for key, (n, total) in cells.items()))
        for cells in sessions.values()
    )


def binomial_bounds(rounds: int, share: float, chance: float = 1e-3) -> tuple[float, float]:
    """Return between which shares of rounds a count lies, but for `chance` on either side."""
    found: Any = scipy.stats.binom(rounds, share)
    return found.ppf(chance) / rounds, found.ppf(1 - chance) / rounds
