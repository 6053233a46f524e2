"""Simulated months of traffic under a detector: how often quiet ones alarm, how soon a rise is found."""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple

from evaltap.evaluator.stats.detector import Bad, Detector, usual


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

    CHANGES: ClassVar[int] = 10
    LONGEST: ClassVar[int] = 4

    def day(self, source: random.Random, *, changed: bool = False) -> list[Bad]:
        """Return the sessions of a day."""
        rate = self.later if changed and self.later is not None else self.rate
        rate = min(0.99, max(0.001, source.gauss(rate, self.day_spread)))
        found = []
        for _ in range(self.sessions):
            turns = source.randint(1, self.LONGEST)
            chance = source.betavariate(4 * rate, 4 * (1 - rate))
            found.append(Bad(sum(source.random() < chance for _ in range(turns)), turns))
        return found


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


def alarm_of(month: Month, chance: float, source: random.Random) -> Alarm | None:
    """Return the first alarm of a month."""
    return _watch(month, chance, source)[0]


def simulate_months(month: Month, rounds: int, *, chance: float, seed: int) -> FoundMonths:
    """Return how often months alarm, and how soon."""
    source = random.Random(seed)
    found = [_watch(month, chance, source) for _ in range(rounds)]
    alarms = [alarm for alarm, _ in found if alarm is not None]
    delays = [alarm.at - Month.CHANGES for alarm in alarms if alarm.at >= Month.CHANGES]
    naive = sum(worst > month.rate + 0.05 for _, worst in found) / rounds
    return FoundMonths(len(alarms) / rounds, median(delays) if delays else float("nan"), naive)


def _watch(month: Month, chance: float, source: random.Random) -> tuple[Alarm | None, float]:
    baseline = usual([month.day(source) for _ in range(14)])
    detector = Detector(baseline.most, Month.LONGEST, chance)
    worst, alarm = 0.0, None
    for at in range(30):
        detector.new_day()
        sessions = month.day(source, changed=at >= Month.CHANGES)
        worst = max(worst, _share(sessions))
        for place, session in enumerate(sessions):
            if alarm is None and detector.observe(session):
                alarm = Alarm(at + place / len(sessions), detector.began)
        if alarm is not None and month.later is not None:
            break
    return alarm, worst


def _share(sessions: Sequence[Bad]) -> float:
    return sum(one.bad for one in sessions) / sum(one.weight for one in sessions)
