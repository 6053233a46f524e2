"""A duty of the consumer: look at the watches while turns land, and store the alarms that are new."""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.monitoring.history import Alert, note_alerts
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.replay import replay
from evaltap.evaluator.monitoring.rules import SILENCE
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import NoMemoryError
from evaltap.schemas.formats.monitor import MonitorFile

LOOK_SECONDS: Final = 2.0
"""Between two looks, at least; a large store is looked at less often."""
MOST_OF_TIME: Final = 20
"""A look that took a second is followed by twenty without one: landing comes first."""
CAUGHT_UP_SECONDS: Final = 10.0
"""So long without a record, and the log is at its end: only then is silence the traffic's."""
log = logging.getLogger(__name__)


class Watcher:
    """Looks at watches when something has landed or was scored; `told` is called with what is new.

    All follows from stored rows: a consumer that was killed finds the same alarms, and stores them once.
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
        self._due = True
        self._not_before = 0.0
        self._changed_at = clock()
        self.evidence: dict[str, float] = {}
        """By watch, what spoke for a change at the last look, over what raises an alarm."""

    def begin(self) -> None:
        """Nothing: what is stored is looked at with the first step."""

    def step(self, changed: ChangedCases | None) -> bool:
        """Look, when something is new and the last look is long enough ago."""
        now = self._clock()
        if changed is not None:
            self._due, self._changed_at = True, now
        quiet = now - self._changed_at >= CAUGHT_UP_SECONDS
        if now < self._not_before or not (self._due or (quiet and self._listens)):
            return False
        try:
            self._look(quiet)
        except NoMemoryError as error:
            log.warning("the watches were not looked at: %s", error)
        self._due = False
        took = self._clock() - now
        self._not_before = self._clock() + max(LOOK_SECONDS, MOST_OF_TIME * took)
        return False

    @property
    def idle(self) -> bool:
        """Whether all that landed was looked at."""
        return not self._due

    def close(self) -> None:
        """Nothing: what is not looked at yet is with the next start."""

    @property
    def _listens(self) -> bool:
        return any(watch.signal == SILENCE for watch in self.rules.watch)

    def _look(self, quiet: bool) -> None:
        watches = [one for one in self.rules.watch if quiet or one.signal != SILENCE]
        chosen = self.rules.model_copy(update={"watch": watches})
        names = [one.name for one in self.rules.watch]
        with self._store.unlimited_memory():
            events = replay(self._store, chosen, now=self._now())
            self.evidence = _evidence(events)
            found = note_alerts(self._store, events, names)
        if found:
            self._told(found)


def _evidence(events: Sequence[Event]) -> dict[str, float]:
    last = {(one.watch, *one.slice.items()): one for one in events}
    found: dict[str, float] = {}
    for event in last.values():
        if event.evidence is not None:
            found[event.watch] = max(found.get(event.watch, 0.0), event.evidence)
    return found
