"""Sequential tests whether a share of turns has risen above that of a usual day, and whether it is back.

Its rate of false alarms is stated, regardless of how often it is evaluated.  Each day a bettor starts with 1,
split evenly between six purses that bet on more; a session multiplies them.  While the share is at most the
given one, the expected sum of all purses grows by one a day, so in the first 30 days it reaches 30/alpha with
a chance of at most alpha (Shiryaev-Roberts e-detector: Shin, Ramdas and Rinaldo, New England Journal of
Statistics in Data Science 2023; bets on bounded means: Waudby-Smith and Ramdas 2023).

The usual share depends on the hour (UTC) and on whether it is a weekend, as far as the baseline shows that
they differ: what repeats every day or every week is no change.
"""

import math
from collections import defaultdict
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
_HOURS: Final = 24
_HOUR_Z: Final = 1.0
"""The hours' errors average out within a day, so their margin is a standard error and not a limit."""
_DIFFERS: Final = 2.0
"""By how many standard errors hours, or weekends, must differ in the baseline to have shares of their own."""
_WEEKENDS: Final = 3
"""The least number of weekend days, and of other days, to tell them apart."""
_ROUNDING: Final = 1e-15
"""A smaller variance is that of equal values, rounded."""
_WEIGHED_DAYS: Final = 14
"""By the sessions of so many days, the last one included, the stakes know how heavy sessions are."""
BACK: Final = 0.05
"""The probability that an alarm resolves while the share is still as high."""
_LEAST_BACK: Final = 20
"""The minimum number of sessions that show a usual share before an alarm resolves."""


class BadTurns(NamedTuple):
    """The counted turns of a session: the weight of the bad ones, and the total weight; and when it began."""

    bad: float
    weight: float
    hour: int = 0
    weekend: bool = False


@dataclass(frozen=True, slots=True)
class Usual:
    """The properties of traffic on usual days."""

    share: float
    """The share of bad turns."""
    most: float
    """The maximum share on a usual day."""
    sessions: int
    hours: tuple[float, ...] = ()
    """What is added to `most` in each hour (UTC); empty: hours do not differ."""
    weekend: float = 0.0
    """What is added to `most` on a weekend."""
    weekday: float = 0.0
    """What is added to `most` on other days."""

    def most_of(self, session: BadTurns) -> float:
        """Return the maximum share of usual sessions at that hour and day."""
        most = self.most + (self.weekend if session.weekend else self.weekday)
        most += self.hours[session.hour] if self.hours else 0.0
        return min(1.0, max(self.most - self.share, most))


def longest_session(turns: Sequence[int]) -> int:
    """Return how many turns of a session count: the 99th percentile of the number of turns, from 1 to 20."""
    return max(1, min(MOST_TURNS, round(percentile(turns, 0.99) or 1)))


def usual(days: Sequence[Sequence[BadTurns]], smallest_change: float = 0.0) -> Usual:
    """Return the maximum share on a usual day, from the sessions of some days.

    It is the share, plus its uncertainty, plus the variation between days beyond chance: without the last
    part, a theoretically correct test raises alarms in most months.  Raises ValueError without sessions.
    """
    sessions = [session for day in days for session in day]
    share, spread = share_of(sessions)
    trials = share * (1 - share) / spread if spread > 0 else float(len(sessions))
    unknown = wilson_of(share, max(trials, 1.0), _Z).high - share
    daily = [(day[0].weekend, *share_of(day)) for day in days if len(day) > 1]
    weekday, weekend, between = _days(daily, share)
    most = (
        share
        + math.sqrt(unknown**2 + _Z**2 * between / len(days))
        + 2 * math.sqrt(between)
        + smallest_change
    )
    hours = _hours(sessions, spread)
    return Usual(share, min(1.0, most), len(sessions), hours, weekend, weekday)


def _days(daily: Sequence[tuple[bool, float, float]], share: float) -> tuple[float, float, float]:
    """Return what is added on weekdays and on weekends, and the variance between days beyond chance."""
    if len(daily) < 2:
        return 0.0, 0.0, 0.0
    noise = fmean(spread for *_, spread in daily)
    groups = [[one for weekend, one, _ in daily if weekend is kind] for kind in (False, True)]
    if min(map(len, groups)) >= _WEEKENDS:
        within = sum(variance(one) * (len(one) - 1) for one in groups) / (len(daily) - 2)
        means = [fmean(one) for one in groups]
        errors = [within / len(one) for one in groups]
        if abs(means[1] - means[0]) > (_DIFFERS + 1) * math.sqrt(sum(errors)):
            added = [
                mean - share + math.sqrt(error) for mean, error in zip(means, errors, strict=True)
            ]
            return added[0], added[1], max(0.0, within - noise)
    return 0.0, 0.0, max(0.0, variance([one for _, one, _ in daily]) - noise)


def _hours(sessions: Sequence[BadTurns], spread: float) -> tuple[float, ...]:
    """Return what is added to the share in each hour: its difference as far as it is known, and its error.

    Differences are shrunk by the part of their variance that is chance; empty if all of it may be chance.
    """
    by_hour: defaultdict[int, list[BadTurns]] = defaultdict(list)
    for one in sessions:
        if one.weight:
            by_hour[one.hour].append(one)
    if len(by_hour) < 2 or spread <= 0:
        return ()
    hours = {hour: share_of(many) for hour, many in by_hour.items()}
    whole = sum(one.weight for one in sessions)
    chance = {
        hour: spread * whole / sum(one.weight for one in many) for hour, many in by_hour.items()
    }
    trust = {hour: 1 / one for hour, one in chance.items()}
    total = sum(trust.values())
    mean = sum(trust[hour] * share for hour, (share, _) in hours.items()) / total
    spread_out = sum(trust[hour] * (share - mean) ** 2 for hour, (share, _) in hours.items())
    freedom = len(hours) - 1
    if spread_out <= freedom + _DIFFERS * math.sqrt(2 * freedom):
        return ()
    between = (spread_out - freedom) / (total - sum(one**2 for one in trust.values()) / total)
    found = [math.sqrt(between)] * _HOURS
    for hour, (share, own) in hours.items():
        error = max(chance[hour], own)
        known = between / (between + error)
        found[hour] = known * (share - mean) + _HOUR_Z * math.sqrt(known * error)
    return tuple(found)


class _Bettors:
    """The purses of all bettors together; those of a day are what was won since it began."""

    def __init__(self, known: Usual, largest: float) -> None:
        self._known = known
        self._heaviest = [largest]
        """The weight of the heaviest session of each day, to which the stakes are adapted."""
        self._sums = [0.0] * len(_BETS)
        self._wealth = [0.0] * len(_BETS)
        self._starts: list[tuple[float, ...]] = []

    def copy(self) -> Self:
        """Return an independent copy."""
        found = copy(self)
        for name, value in vars(self).items():
            if isinstance(value, list):
                setattr(found, name, [*value])
        return found

    @property
    def largest(self) -> float:
        """The weight of the heaviest session of the last days."""
        return max(self._heaviest)

    def _start(self, purse: float) -> None:
        self._heaviest = [*self._heaviest[1 - _WEIGHED_DAYS :], 0.0]
        self._sums = [one + purse for one in self._sums]
        self._starts.append(tuple(self._wealth))

    def _bet(self, won: float, had: float) -> None:
        """Multiply the purses by what the largest bet wins with a session, after what it had won."""
        for place, part in enumerate(_BETS):
            factor = (1 + part * won) / (1 + part * had)
            self._sums[place] *= factor
            self._wealth[place] += math.log(factor)

    def _stake(self, session: BadTurns, unit: float) -> float:
        """Return what a bad turn wins or loses, if a session of weight 1 can lose at most `unit`.

        A heavy session counts in full: if sampling keeps all bad turns, only good ones are heavy.
        """
        self._heaviest[-1] = max(self._heaviest[-1], session.weight)
        return 0.9 / (unit * self.largest)

    @property
    def _winner(self) -> int:
        """The day, counted from 0, whose bettor has won most."""
        gains = [
            sum(
                math.exp(min(now - then, 700))
                for now, then in zip(self._wealth, start, strict=True)
            )
            for start in self._starts
        ]
        return gains.index(max(gains))


class Detector(_Bettors):
    """Observes sessions in order; `alpha` is the false alarm probability per month."""

    def __init__(self, known: Usual, largest: float, alpha: float) -> None:
        """Expect at most the usual share; `largest` is what a session usually weighs at most."""
        super().__init__(known, largest)
        self._threshold = MONTH_DAYS / alpha

    def new_day(self) -> None:
        """Begin a new day: another bettor starts."""
        self._start(1)

    def observe(self, session: BadTurns, before: BadTurns | None = None) -> bool:
        """Add a session; return whether the evidence now suffices for an alarm.

        `before` is what has been observed of the same session already.
        """
        most = self._known.most_of(session)
        if most > 0:  # otherwise, nothing is ever bad at that hour, and no bet on more is bounded
            self._bet(self._won(session, most), 0.0 if before is None else self._won(before, most))
            return self.evidence >= 1
        return False

    def _won(self, session: BadTurns, most: float) -> float:
        return self._stake(session, most) * (session.bad - most * session.weight)

    @property
    def evidence(self) -> float:
        """The total of all purses, divided by the threshold of the alarm."""
        return fmean(self._sums) / self._threshold

    @property
    def began(self) -> int:
        """The day, counted from 0, whose bettor has won most: the likely beginning of the higher share."""
        return self._winner


class Recovery(_Bettors):
    """Observes sessions during an alarm: whether the share is no longer what raised it.

    The bets are on less.  The bettor of the k-th day starts with 1/(k(k+1)), so that all together start with
    1, and reach 1/BACK with a chance of at most BACK while the share is at least `excess` above the usual.
    """

    def __init__(self, known: Usual, largest: float, excess: float) -> None:
        super().__init__(known, largest)
        self._excess = excess
        self._days: list[tuple[int, float, float, float]] = []
        """By day: sessions, bad and all turns, and the bad ones that are usual."""

    def new_day(self) -> None:
        """Begin a new day: another bettor starts."""
        day = len(self._starts) + 1
        self._start(1 / (day * (day + 1)))
        self._days.append((0, 0.0, 0.0, 0.0))

    def observe(self, session: BadTurns, before: BadTurns | None = None) -> float | None:
        """Add a session; return the share since it is back, or None as long as that is not certain.

        `before` is what has been observed of the same session already.
        """
        usual_most = self._known.most_of(session)
        most = min(0.99, usual_most + self._excess)
        self._bet(self._won(session, most), 0.0 if before is None else self._won(before, most))
        seen = BadTurns(0, 0) if before is None else before
        sessions, bad, weight, expected = self._days[-1]
        more = session.weight - seen.weight
        self._days[-1] = (
            sessions + (before is None),
            bad + session.bad - seen.bad,
            weight + more,
            expected + usual_most * more,
        )
        return self._share_now() if fmean(self._sums) * BACK >= 1 else None

    def _share_now(self) -> float | None:
        since = self._days[self._winner :]
        sessions = sum(one for one, *_ in since)
        bad, weight, expected = (sum(one[place] for one in since) for place in (1, 2, 3))
        if sessions < _LEAST_BACK or weight <= 0 or bad > expected:
            return None
        return max(0.0, bad / weight)

    def _won(self, session: BadTurns, most: float) -> float:
        return self._stake(session, 1 - most) * (most * session.weight - session.bad)


def share_of(sessions: Sequence[BadTurns]) -> tuple[float, float]:
    """Return the share of bad turns and its variance, by sessions."""
    if not (weight := sum(session.weight for session in sessions)):
        raise ValueError("no turn counts; expected sessions with turns")
    share = sum(session.bad for session in sessions) / weight
    spread = sum((one.bad - share * one.weight) ** 2 for one in sessions) / weight**2
    return share, spread if spread > _ROUNDING else 0.0
