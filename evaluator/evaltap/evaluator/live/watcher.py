"""A task of the consumer: look at the watches while turns land, and store the alarms that are new."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.live.background import BackgroundRead
from evaltap.evaluator.monitoring.history import Alert, note_alerts
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.replay import Watches
from evaltap.evaluator.monitoring.rules import SILENCE
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import NoMemoryError
from evaltap.schemas.formats.monitor import MonitorFile

LOOK_SECONDS: Final = 2.0
"""Between two looks, at least; a large store is looked at less often."""
AGAIN_SECONDS: Final = 60.0
"""After a look so long ago another one is due though nothing is new: sessions have ended meanwhile."""
MOST_OF_TIME: Final = 20
"""A look that took a second is followed by twenty without one: landing comes first."""
CAUGHT_UP_SECONDS: Final = 10.0
"""So long without a record, and the log is at its end: only then is silence the traffic's."""
log = logging.getLogger(__name__)


class Watcher:
    """Looks at watches when something has landed or was scored; `told` is called with what is new.

    Looks are made on another thread and rows written on the consumer's.  All follows from stored rows: a
    consumer that was killed finds the same alarms, and stores them once.
    """

    def __init__(
        self,
        store: Store,
        rules: MonitorFile,
        told: Callable[[Sequence[Alert]], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.rules = rules
        self._store = store
        self._told = told
        self._clock = clock
        self._now = now
        watches = Watches(rules)
        self._look = BackgroundRead(
            store, lambda reader: watches.look(reader, self._now()), "watch"
        )
        self._began = clock()
        self._due = True
        self._quiet = False
        """Whether the log was at its end when the look began."""
        self._not_before = 0.0
        self._changed_at = clock()
        self.evidence: dict[str, float] = {}
        """By watch, what spoke for a change at the last look, over what raises an alarm."""

    def begin(self) -> None:
        """Nothing: what is stored is looked at with the first step."""

    def step(self, changed: ChangedCases | None) -> bool:
        """Take what a look has found; begin one when something is new and the last is long enough ago."""
        now = self._clock()
        if changed is not None:
            self._due, self._changed_at = True, now
        if self._look.runs:
            self._take()
        elif now >= self._not_before and self._is_due(now):
            self._began, self._due = now, False
            self._quiet = now - self._changed_at >= CAUGHT_UP_SECONDS
            self._look.start()
        return False

    def _is_due(self, now: float) -> bool:
        caught_up = now - self._changed_at >= CAUGHT_UP_SECONDS
        return self._due or now - self._began >= AGAIN_SECONDS or (caught_up and self._listens)

    @property
    def idle(self) -> bool:
        """Whether all that landed was looked at."""
        return not (self._due or self._look.runs)

    def close(self) -> None:
        """Let a look end; what it finds, and what is not looked at yet, is with the next start."""
        self._look.close()

    @property
    def _listens(self) -> bool:
        return any(watch.signal == SILENCE for watch in self.rules.watch)

    def _take(self) -> None:
        try:
            found = self._look.take()
        except NoMemoryError as error:
            log.warning("the watches could not be evaluated: %s", error)
            found = []
        if found is None:
            return
        took = self._clock() - self._began
        self._not_before = self._clock() + max(LOOK_SECONDS, MOST_OF_TIME * took)
        for events in found:
            self._note(events)
        self._due = self._due or not found

    def _note(self, events: Sequence[Event]) -> None:
        # Until the log is read to its end, it is the consumer that is silent.
        silent = [one.name for one in self.rules.watch if one.signal == SILENCE]
        heard = events if self._quiet else [one for one in events if one.watch not in silent]
        self.evidence = _evidence(heard)
        new = note_alerts(self._store, heard, [one.name for one in self.rules.watch])
        if new:
            self._told(new)


def _evidence(events: Sequence[Event]) -> dict[str, float]:
    last = {one.stream: one for one in events}
    found: dict[str, float] = {}
    for event in last.values():
        if event.evidence is not None:
            found[event.watch] = max(found.get(event.watch, 0.0), event.evidence)
    return found
