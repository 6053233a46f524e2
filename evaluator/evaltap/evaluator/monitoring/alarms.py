"""A stream of sessions under a detector: when an alarm begins, since when, and when it is over."""

from collections import deque
from datetime import date

from evaltap.evaluator.stats.detector import Bad, Detector, Usual


class Alarms:
    """Raises an alarm, waits until the stream has recovered, and starts again."""

    def __init__(self, known: Usual, largest: float, chance: float) -> None:
        self._known = known
        self._largest = largest
        self._chance = chance
        self._restart()

    def _restart(self) -> None:
        self._detector = Detector(self._known.most, self._largest, self._chance)
        self._days: list[date] = []
        self._seen: list[tuple[date, Bad]] = []
        self._trailing: deque[Bad] = deque()
        self.firing = False

    @property
    def evidence(self) -> float:
        """What speaks for a change, over what raises the alarm."""
        return self._detector.evidence

    @property
    def since(self) -> date:
        """The day since which the share is most likely higher."""
        return self._days[self._detector.began]

    @property
    def share(self) -> float | None:
        """The share of bad turns: since then while the alarm is on, else of all that was watched."""
        first = self.since if self.firing else date.min
        return _share([one for day, one in self._seen if day >= first])

    def observe(self, day: date, session: Bad) -> bool:
        """Take the next session; return whether the alarm begins."""
        if not self._days or day > self._days[-1]:
            self._days.append(day)
            self._detector.new_day()
        self._seen.append((day, session))
        if self._detector.observe(session):
            self.firing = True
            took = sum(seen >= self.since for seen, _ in self._seen)
            self._trailing = deque(maxlen=took)
        return self.firing

    def recovered(self, session: Bad) -> float | None:
        """Take a session while the alarm is on; return the share now when it is over, None before.

        It is over when as many sessions as the alarm took have no more than a usual day.
        """
        self._trailing.append(session)
        share = _share(self._trailing)
        if len(self._trailing) < (self._trailing.maxlen or 0) or share is None:
            return None
        if share > self._known.most:
            return None
        self._restart()
        return share


def _share(sessions: "deque[Bad] | list[Bad]") -> float | None:
    weight = sum(one.weight for one in sessions)
    return sum(one.bad for one in sessions) / weight if weight else None
