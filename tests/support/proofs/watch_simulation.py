"""Simulated months of traffic under a detector: how often quiet months raise alarms, how soon a rise is
found."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from functools import cache
from statistics import median
from typing import ClassVar, NamedTuple

from evaltap.evaluator.analysis.stats.detector import MONTH_DAYS, BadTurns, Detector, usual
from evaltap.evaluator.monitoring.learned import Alarms

MONDAY = date(2026, 11, 2)
ALIKE = 4.0
"""Of the beta distribution of a session's rate, both parameters together: a correlation of 0.2."""


@dataclass(frozen=True)
class Month:
    """Fourteen days of baseline and thirty days under watch; sessions have 1 to 4 turns that are alike."""

    sessions: int
    """A day."""
    rate: float = 0.05
    """The share of bad turns."""
    later: float | None = None
    """That share from day CHANGES on; None: nothing changes."""
    day_spread: float = 0.0
    """By how much days differ: a standard deviation."""
    hours: tuple[int, int] = (0, 0)
    """The hours of every day with another share, from the first to before the last."""
    hours_rate: float = 0.0
    """The share of bad turns in these hours."""
    weekend_rate: float | None = None
    """The share of bad turns on weekends; None: as on other days."""

    CHANGES: ClassVar[int] = 10
    LONGEST: ClassVar[int] = 4

    def day(
        self, source: random.Random, number: int = 0, *, changed: bool = False
    ) -> list[BadTurns]:
        """Return the sessions of a day, evenly over its hours; day 0 is a Monday."""
        moved = source.gauss(0, self.day_spread)
        weekend = number % 7 >= 5
        found = []
        for place in range(self.sessions):
            hour = 24 * place // self.sessions
            rate = self._rate(hour, weekend=weekend, changed=changed) + moved
            rate = min(0.99, max(0.001, rate))
            turns = source.randint(1, self.LONGEST)
            chance = source.betavariate(ALIKE * rate, ALIKE * (1 - rate))
            bad = sum(source.random() < chance for _ in range(turns))
            found.append(BadTurns(bad, turns, hour, weekend))
        return found

    def _rate(self, hour: int, *, weekend: bool, changed: bool) -> float:
        if changed and self.later is not None:
            return self.later
        if weekend and self.weekend_rate is not None:
            return self.weekend_rate
        return self.hours_rate if self.hours[0] <= hour < self.hours[1] else self.rate


class Alarm(NamedTuple):
    """When it began, in days."""

    at: float
    began: int
    """The day since which the share is higher, by its own word."""


class FoundMonths(NamedTuple):
    """Shares of simulated months."""

    alarms: float
    delay: float
    """The median of days from the change to the alarm."""
    naive: float
    """Months in which a day was five points worse than the baseline."""
    informed: float
    """Months in which the informed test alarmed."""
    informed_delay: float


class Informed:
    """The test that knows the new share and how turns of a session resemble each other: likelihood ratios.

    It has the same baseline and makes the same promise: how much sooner it is shows what is left to gain.
    """

    def __init__(self, most: float, later: float, alpha: float) -> None:
        self._before, self._after = most, later
        self._sum, self._threshold = 0.0, MONTH_DAYS / alpha

    def new_day(self) -> None:
        """Begin anew, beside what was begun before."""
        self._sum += 1

    def observe(self, session: BadTurns) -> bool:
        """Return whether the evidence is now enough for an alarm."""
        counts = int(session.bad), int(session.weight)
        self._sum *= math.exp(
            _log_chance(*counts, self._after) - _log_chance(*counts, self._before)
        )
        return self._sum >= self._threshold


@cache
def _log_chance(bad: int, turns: int, rate: float) -> float:
    """Return the chance of one order of so many bad turns in a session of `Month`, as a logarithm."""
    a, b = ALIKE * rate, ALIKE * (1 - rate)
    return (
        math.lgamma(bad + a) - math.lgamma(a) + math.lgamma(turns - bad + b) - math.lgamma(b)
        - math.lgamma(turns + ALIKE) + math.lgamma(ALIKE)
    )  # fmt: skip


class _Watched(NamedTuple):
    """What became of a month."""

    alarm: Alarm | None
    informed: float | None
    """When the informed test alarmed, in days."""
    worst: float
    """The worst day."""


def alarm_of(month: Month, chance: float, source: random.Random) -> Alarm | None:
    """Return the first alarm of a month."""
    return _watch(month, chance, source).alarm


def simulate_months(month: Month, rounds: int, *, chance: float, seed: int) -> FoundMonths:
    """Return how often months alarm, and how soon."""
    source = random.Random(seed)
    found = [_watch(month, chance, source) for _ in range(rounds)]
    alarms = [one.alarm.at for one in found if one.alarm is not None]
    informed = [one.informed for one in found if one.informed is not None]
    naive = sum(one.worst > month.rate + 0.05 for one in found) / rounds
    return FoundMonths(
        len(alarms) / rounds, _delay(alarms), naive, len(informed) / rounds, _delay(informed)
    )


def _delay(alarms: Sequence[float]) -> float:
    late = [at - Month.CHANGES for at in alarms if at >= Month.CHANGES]
    return median(late) if late else float("nan")


def _watch(month: Month, chance: float, source: random.Random) -> _Watched:
    baseline = usual([month.day(source, number) for number in range(14)])
    detector = Detector(baseline, Month.LONGEST, chance)
    informed = None if month.later is None else Informed(baseline.most, month.later, chance)
    worst, alarm, first = 0.0, None, None
    for day in range(30):
        sessions = month.day(source, day, changed=day >= Month.CHANGES)
        worst = max(worst, _share(sessions))
        detector.new_day()
        if informed is not None:
            informed.new_day()
        for place, session in enumerate(sessions):
            at = day + place / len(sessions)
            if alarm is None and detector.observe(session):
                alarm = Alarm(at, detector.began)
            if informed is not None and first is None and informed.observe(session):
                first = at
        if alarm is not None and first is not None:
            break
    return _Watched(alarm, first, worst)


class FoundRises(NamedTuple):
    """What became of the alarms of rises that last twenty days, and then end."""

    alarms: int
    resolved: int
    """Those that resolved while the rise lasted."""
    days: float
    """The median of days from its end until the alarm resolved."""


def simulate_rises(month: Month, rounds: int, *, chance: float, seed: int) -> FoundRises:
    """Return how many alarms resolve while the share is still higher, and how soon the others do."""
    source = random.Random(seed)
    alarms = resolved = 0
    days: list[float] = []
    ends = Month.CHANGES + 20
    for _ in range(rounds):
        baseline = usual([month.day(source, number) for number in range(14)])
        watch, over = Alarms(baseline, Month.LONGEST, chance), None
        for day in range(Month.CHANGES, ends + 20):
            sessions = month.day(source, day, changed=day < ends)
            for place, session in enumerate(sessions):
                at, when = day + place / len(sessions), MONDAY + timedelta(days=day)
                if not watch.firing:
                    alarms += watch.observe(when, session) and day < ends
                elif watch.recovered(when, session) is not None:
                    resolved += day < ends
                    over = at if day >= ends and over is None else over
        if over is not None:
            days.append(over - ends)
    return FoundRises(alarms, resolved, median(days) if days else float("nan"))


def _share(sessions: Sequence[BadTurns]) -> float:
    return sum(one.bad for one in sessions) / sum(one.weight for one in sessions)
