"""Simulated months of latencies under the two streams of `slow_rate`, under one of them, and as a mean."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import COMMON, MEDIAN
from evaltap.evaluator.analysis.stats.detector import BadTurns, Detector, usual
from evaltap.evaluator.analysis.stats.rate import percentile
from evaltap.evaluator.monitoring.measures import CAP_SHARE, CAP_TIMES

_Session = Sequence[float]
"""The logarithms of the latencies of its turns."""


@dataclass(frozen=True)
class LatencyMonth:
    """Fourteen days of baseline and thirty days under watch; sessions have 1 to 4 turns that are alike."""

    sessions: int
    """A day."""
    slower: float = 0.0
    """By what share every turn takes longer from day CHANGES on."""
    day_spread: float = 0.0
    """By what share days differ: a standard deviation."""
    night: float = 0.0
    """By what share turns take longer from 0 to 6 h, every day."""
    tail: float = 0.0
    """The share of turns that take 20 times as long from day CHANGES on."""
    spread: float = 0.6
    """Of the logarithm of a latency: the 95th percentile is 2.7 times the median."""

    CHANGES: ClassVar[int] = 10
    LONGEST: ClassVar[int] = 4
    ALIKE: ClassVar[float] = 0.2
    """The correlation of the turns of a session."""

    def day(self, source: random.Random, *, changed: bool = False) -> list[_Session]:
        """Return the sessions of a day."""
        level = source.gauss(0, self.day_spread) + math.log1p(self.slower if changed else 0)
        own, shared = (self.spread * math.sqrt(one) for one in (1 - self.ALIKE, self.ALIKE))
        found: list[_Session] = []
        for place in range(self.sessions):
            usually = level + source.gauss(0, shared)
            if self.hour(place) < 6:
                usually += math.log1p(self.night)
            turns = source.randint(1, self.LONGEST)
            found.append([source.gauss(usually, own) for _ in range(turns)])
            if changed and self.tail:
                slow = math.log(20)
                found[-1] = [one + slow * (source.random() < self.tail) for one in found[-1]]
        return found

    def hour(self, place: int) -> int:
        """Return the hour of a session of a day."""
        return 24 * place // self.sessions


class FoundLatencies(NamedTuple):
    """Shares of simulated months with an alarm, and the medians of days from the change to the alarm."""

    alarms: float
    delay: float
    tail_alarms: float
    """Of the 95th percentile alone, which then has the whole chance of a false alarm."""
    tail_delay: float


class _Stream:
    """The share of turns above a quantile of the baseline, under a detector."""

    def __init__(self, days: Sequence[Sequence[_Session]], quantile: float, chance: float) -> None:
        turns = [turn for day in days for session in day for turn in session]
        self._limit = percentile(turns, quantile) or 0.0
        known = usual([[self._bad(one) for one in day] for day in days])
        self._detector = Detector(known, LatencyMonth.LONGEST, chance)
        self.alarm: float | None = None

    def _bad(self, session: _Session) -> BadTurns:
        return BadTurns(sum(turn > self._limit for turn in session), len(session))

    def watch(self, day: int, sessions: Sequence[_Session]) -> None:
        """Take a day, until there is an alarm."""
        if self.alarm is not None:
            return
        self._detector.new_day()
        for place, session in enumerate(sessions):
            if self._detector.observe(self._bad(session)):
                self.alarm = day + place / len(sessions)
                return


def simulate_latencies(
    month: LatencyMonth, rounds: int, *, chance: float, seed: int
) -> FoundLatencies:
    """Return how often months alarm, and how soon."""
    source = random.Random(seed)
    found = [_watch(month, chance, source) for _ in range(rounds)]
    both = [one for one, _ in found if one is not None]
    tail = [one for _, one in found if one is not None]
    return FoundLatencies(len(both) / rounds, _delay(both), len(tail) / rounds, _delay(tail))


def _watch(
    month: LatencyMonth, chance: float, source: random.Random
) -> tuple[float | None, float | None]:
    """Return when the two streams alarmed first, and when the 95th percentile alone did, in days."""
    days = [month.day(source) for _ in range(14)]
    both = [_Stream(days, quantile, chance / 2) for quantile in (COMMON, MEDIAN)]
    alone = _Stream(days, COMMON, chance)
    for day in range(30):
        sessions = month.day(source, changed=day >= LatencyMonth.CHANGES)
        for stream in (*both, alone):
            stream.watch(day, sessions)
    return min((one.alarm for one in both if one.alarm is not None), default=None), alone.alarm


def simulate_means(
    month: LatencyMonth, rounds: int, *, chance: float, seed: int
) -> tuple[float, float]:
    """Return how often months alarm under a watch on the mean, and how soon."""
    source = random.Random(seed)
    found = [_watch_mean(month, chance, source) for _ in range(rounds)]
    alarms = [one for one in found if one is not None]
    return len(alarms) / rounds, _delay(alarms)


def _watch_mean(month: LatencyMonth, chance: float, source: random.Random) -> float | None:
    days = [month.day(source) for _ in range(14)]
    turns = [math.exp(turn) for day in days for session in day for turn in session]
    largest = CAP_TIMES * (percentile(turns, CAP_SHARE) or 1.0)

    def cut(place: int, session: _Session) -> BadTurns:
        total = sum(min(1.0, math.exp(turn) / largest) for turn in session)
        return BadTurns(total, len(session), month.hour(place))

    known = usual([[cut(place, one) for place, one in enumerate(day)] for day in days])
    detector = Detector(known, LatencyMonth.LONGEST, chance)
    for day in range(30):
        detector.new_day()
        sessions = month.day(source, changed=day >= LatencyMonth.CHANGES)
        for place, session in enumerate(sessions):
            if detector.observe(cut(place, session)):
                return day + place / len(sessions)
    return None


def _delay(alarms: Sequence[float]) -> float:
    late = [at - LatencyMonth.CHANGES for at in alarms if at >= LatencyMonth.CHANGES]
    return median(late) if late else float("nan")
