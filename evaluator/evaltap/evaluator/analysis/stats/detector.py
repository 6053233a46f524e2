"""A sequential test whether a share of turns has risen above that of a usual day.

Its rate of false alarms is stated, regardless of how often it is evaluated.  Each day a bettor starts with 1,
split evenly between six purses that bet on more; a session multiplies them.  While the share is at most the
given one, the expected sum of all purses grows by one a day, so in the first 30 days it reaches 30/alpha with
a chance of at most alpha (Shiryaev-Roberts e-detector: Shin, Ramdas and Rinaldo, New England Journal of
Statistics in Data Science 2023; bets on bounded means: Waudby-Smith and Ramdas 2023).
"""

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final, NamedTuple, Self

from evaltap.evaluator.analysis.stats.rate import percentile, wilson_of

MONTH_DAYS: Final = 30
MOST_TURNS: Final = 20
"""The maximum number of turns that count in a session, so that one session cannot raise the alarm."""
_Z: Final = 2.326
"""The 99 % quantile."""
_BETS: Final = tuple(2.0**-place for place in range(6))


class BadTurns(NamedTuple):
    """The counted turns of a session: the weight of the bad ones, and the total weight."""

    bad: float
    weight: float


@dataclass(frozen=True, slots=True)
class Usual:
    """The properties of traffic on usual days."""

    share: float
    """The share of bad turns."""
    most: float
    """The maximum share on a usual day."""
    sessions: int


def longest_session(turns: Sequence[int]) -> int:
    """Return how many turns of a session count: the 99th percentile of the number of turns, from 1 to 20."""
    return max(1, min(MOST_TURNS, round(percentile(turns, 0.99) or 1)))


def usual(days: Sequence[Sequence[BadTurns]], smallest_change: float = 0.0) -> Usual:
    """Return the maximum share on a usual day, from the sessions of some days.

    It is the share, plus its uncertainty, plus the variation between days beyond chance: without the last
    part, a theoretically correct test raises alarms in most months.  Raises ValueError without sessions.
    """
    sessions = [session for day in days for session in day]
    share, spread = _share(sessions)
    trials = share * (1 - share) / spread if spread > 0 else float(len(sessions))
    unknown = wilson_of(share, max(trials, 1.0), _Z).high - share
    daily = [_share(day) for day in days if len(day) > 1]
    between = 0.0
    if len(daily) > 1:
        between = variance([one for one, _ in daily]) - fmean(noise for _, noise in daily)
    between = max(0.0, between)
    most = (
        share
        + math.sqrt(unknown**2 + _Z**2 * between / len(days))
        + 2 * math.sqrt(between)
        + smallest_change
    )
    return Usual(share, min(1.0, most), len(sessions))


class Detector:
    """Observes sessions in the order of their beginning; `alpha` is the false alarm probability per month."""

    def __init__(self, most: float, largest: float, alpha: float) -> None:
        """Expect at most a share of `most`; no session weighs more than `largest`."""
        self._most = most
        self._largest = largest
        self._bets = [0.9 / (most * largest) * part for part in _BETS] if most > 0 else []
        self._sums = [0.0] * len(self._bets)
        self._wealth = [0.0] * len(self._bets)
        self._starts: list[tuple[float, ...]] = []
        self._threshold = MONTH_DAYS / alpha

    def copy(self) -> Self:
        """Return an independent copy."""
        found = copy(self)
        found._sums, found._wealth = [*self._sums], [*self._wealth]
        found._starts = [*self._starts]
        return found

    def new_day(self) -> None:
        """Begin a new day: another bettor starts."""
        self._sums = [one + 1 for one in self._sums]
        self._starts.append(tuple(self._wealth))

    def observe(self, session: BadTurns) -> bool:
        """Add a session; return whether the evidence now suffices for an alarm."""
        weight = min(session.weight, self._largest)
        bad = session.bad * weight / session.weight if session.weight else 0.0
        for place, bet in enumerate(self._bets):
            factor = 1 + bet * (bad - self._most * weight)
            self._sums[place] *= factor
            self._wealth[place] += math.log(factor)
        return self.evidence >= 1

    @property
    def evidence(self) -> float:
        """The total of all purses, divided by the threshold of the alarm."""
        return fmean(self._sums) / self._threshold if self._sums else 0.0

    @property
    def began(self) -> int:
        """The day, counted from 0, whose bettor has won most: the likely beginning of the higher share."""
        gains = [
            sum(
                math.exp(min(now - then, 700))
                for now, then in zip(self._wealth, start, strict=True)
            )
            for start in self._starts
        ]
        return gains.index(max(gains))


def _share(sessions: Sequence[BadTurns]) -> tuple[float, float]:
    """Return the share of bad turns and its variance, by sessions."""
    weight = sum(session.weight for session in sessions)
    if not weight:
        raise ValueError("no turn counts; expected sessions with turns")
    share = sum(session.bad for session in sessions) / weight
    return share, sum((one.bad - share * one.weight) ** 2 for one in sessions) / weight**2
