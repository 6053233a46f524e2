"""Run a detector over a stream of sessions: when an alarm begins, since when, and when it ends."""

from collections import deque
from dataclasses import dataclass
from datetime import date
from typing import Self

from evaltap.evaluator.analysis.stats.detector import BadTurns, Detector, Usual


@dataclass(slots=True)
class _Day:
    """The watched sessions of a day."""

    day: date
    sessions: int = 0
    bad: float = 0.0
    weight: float = 0.0


class Alarms:
    """Raises an alarm, waits until the stream has recovered, and starts again.

    It stores a few numbers for each day, and a copy continues independently.
    """

    def __init__(self, known: Usual, largest: float, chance: float) -> None:
        self._known = known
        self._largest = largest
        self._chance = chance
        self._restart()

    def _restart(self) -> None:
        self._detector = Detector(self._known.most, self._largest, self._chance)
        self._days: list[_Day] = []
        self._trailing: deque[BadTurns] = deque()
        self._bad = self._weight = 0.0
        self.firing = False

    def copy(self) -> Self:
        """Return an independent copy."""
        found = type(self)(self._known, self._largest, self._chance)
        found._detector = self._detector.copy()
        found._days = [_Day(one.day, one.sessions, one.bad, one.weight) for one in self._days]
        found._trailing = self._trailing.copy()
        found._bad, found._weight = self._bad, self._weight
        found.firing = self.firing
        return found

    @property
    def evidence(self) -> float:
        """The evidence for a change, divided by the threshold of the alarm."""
        return self._detector.evidence

    @property
    def since(self) -> date:
        """The day since which the share is most likely higher."""
        return self._days[self._detector.began].day

    @property
    def share(self) -> float | None:
        """The share of bad turns: since the change while the alarm is on, otherwise over all watched days."""
        days = self._changed if self.firing else self._days
        weight = sum(one.weight for one in days)
        return sum(one.bad for one in days) / weight if weight else None

    @property
    def _changed(self) -> list[_Day]:
        return self._days[self._detector.began :]

    def observe(self, day: date, session: BadTurns) -> bool:
        """Process the next session; return whether the alarm begins."""
        if not self._days or day > self._days[-1].day:
            self._days.append(_Day(day))
            self._detector.new_day()
        today = self._days[-1]
        today.sessions += 1
        today.bad += session.bad
        today.weight += session.weight
        if self._detector.observe(session):
            self.firing = True
            self._trailing = deque(maxlen=sum(one.sessions for one in self._changed))
        return self.firing

    def recovered(self, session: BadTurns) -> float | None:
        """Process a session during an alarm; return the current share once the alarm is over, None before.

        It is over when as many sessions as raised the alarm have at most the share of a usual day.
        """
        full = len(self._trailing) == self._trailing.maxlen
        gone = self._trailing[0] if full else BadTurns(0, 0)
        self._trailing.append(session)
        self._bad += session.bad - gone.bad
        self._weight += session.weight - gone.weight
        if len(self._trailing) < (self._trailing.maxlen or 0) or self._weight <= 0:
            return None
        share = max(0.0, self._bad / self._weight)
        if share > self._known.most:
            return None
        self._restart()
        return share
