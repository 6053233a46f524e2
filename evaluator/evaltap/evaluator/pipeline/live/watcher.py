"""A task of the consumer: evaluate the watches while turns land, and store new alarms."""

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.ingest.sources.base import Bounds, CaseSource, Partition
from evaltap.evaluator.ingest.sources.positions import stored_offsets
from evaltap.evaluator.monitoring.history import (
    Alert,
    firing,
    note_alerts,
    note_states,
    read_alerts,
)
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.replay import Watches
from evaltap.evaluator.monitoring.rules import SILENCE
from evaltap.evaluator.pipeline.live.background import BackgroundRead
from evaltap.evaluator.pipeline.live.consumer import ConsumerTask
from evaltap.evaluator.store.database import Store
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.monitor import MonitorFile

LOOK_SECONDS: Final = 2.0
"""Least time between two evaluations; a large store is evaluated less often."""
AGAIN_SECONDS: Final = 60.0
"""Watches are evaluated at least this often, even if nothing has landed: sessions may have ended."""
MOST_OF_TIME: Final = 20
"""After an evaluation of one second, none starts for twenty: landing has priority."""
STATE_SECONDS: Final = 30.0
"""The states of watches are stored when they change, at least this often, and in the end."""
CAUGHT_UP_SECONDS: Final = 10.0
"""Without a record for this long, the log counts as read to its end, so that silence is the traffic's.  While
records land, the log itself tells.
"""


class Watcher(ConsumerTask):
    """Evaluates watches when records have landed or been scored; calls `notify` with new alarms.

    `ends` says whether the consumer only waits for this before it ends: then there is no pause.  `read_to`
    asks the log up to which time it has been read, as `LogEnd` does.

    Watches are evaluated on another thread; rows are written on the consumer's.  Alarms follow from stored
    rows alone: a consumer that was killed finds the same alarms again, and stores them once.
    """

    def __init__(
        self,
        store: Store,
        rules: MonitorFile,
        notify: Callable[[Sequence[Alert]], None],
        *,
        ends: Callable[[], bool] = lambda: False,
        read_to: Callable[[], datetime | None] = lambda: None,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self.rules = rules
        self._ends, self._ask_read_to = ends, read_to
        self._store = store
        self._notify = notify
        self._clock = clock
        self._now = now
        watches = Watches(rules)
        self._evaluation = BackgroundRead(
            store,
            lambda reader: watches.evaluate(
                reader,
                self._now(),
                silent_to=self._silent_to,
                leading={one.event.stream for one in firing(read_alerts(reader))},
            ),
            "watch",
            "the watches could not be evaluated",
        )
        self._began = clock()
        self._due = True
        self._read_to: datetime | None = None
        """The time up to which the log was read when it was asked."""
        self._ask_at = 0.0
        self._silent_to: datetime | None = None
        """The time up to which the log was read when the evaluation started; none if it ends with it."""
        self._hears = False
        """Whether the evaluation tells silence from a consumer that is behind."""
        self._hears_new = False
        """Whether the log was read to a later time since."""
        self._not_before = 0.0
        self._changed_at = clock()
        self._states: tuple[float, Sequence[object]] | None = None
        """When the states were stored, and what they were."""
        self._unstored: Sequence[Event] | None = None
        """The events of the last evaluation, if their figures were not stored."""
        self.evidence: dict[str, float] = {}
        """By watch, the evidence for a change at the last evaluation, divided by what raises an alarm."""

    def step(self, changed: ChangedCases | None) -> bool:
        """Take the result of an evaluation, or start one if due."""
        now = self._clock()
        if changed is not None:
            self._due, self._changed_at = True, now
        if self._evaluation.runs:
            self._take()
            return False
        self._listen(now)
        ends = self._due and self._ends()
        if ends or (now >= self._not_before and self._is_due(now)):
            self._hears = ends or self._read_to is not None
            self._silent_to = None if ends else self._read_to
            self._began, self._due, self._hears_new = now, False, False
            self._evaluation.start()
        return False

    def _listen(self, now: float) -> None:
        if not self._listens or now < self._ask_at:
            return
        # While nothing lands, the log may be away, and asking would wait for it.
        is_quiet = now - self._changed_at >= CAUGHT_UP_SECONDS
        found = self._now() if is_quiet else self._ask_read_to()
        if found is not None and (self._read_to is None or found > self._read_to):
            self._read_to, self._hears_new = found, True
        self._ask_at = now + LOOK_SECONDS

    def _is_due(self, now: float) -> bool:
        return self._due or self._hears_new or now - self._began >= AGAIN_SECONDS

    @property
    def idle(self) -> bool:
        """Whether the watches were evaluated on everything that landed."""
        return not (self._due or self._evaluation.runs)

    def close(self) -> None:
        """Cancel an evaluation under way, which the next start repeats, and store the last states."""
        self._evaluation.close()
        if self._unstored is not None:
            note_states(self._store, self._unstored)

    @property
    def _listens(self) -> bool:
        return any(watch.signal == SILENCE for watch in self.rules.watch)

    def _take(self) -> None:
        if (found := self._evaluation.take()) is None:
            return
        took = self._clock() - self._began
        self._not_before = self._clock() + max(LOOK_SECONDS, MOST_OF_TIME * took)
        for events in found:
            self._note(events)
        self._due = self._due or not found

    def _note(self, events: Sequence[Event]) -> None:
        # Before the log is read to its end, silence only means that the consumer is behind.
        silent = [one.name for one in self.rules.watch if one.signal == SILENCE]
        heard = events if self._hears else [one for one in events if one.watch not in silent]
        self.evidence = _evidence(heard)
        if new := note_alerts(self._store, heard, [one.name for one in self.rules.watch]):
            self._notify(new)
        self._keep_states(heard)

    def _keep_states(self, events: Sequence[Event]) -> None:
        states = [
            (*one.stream, one.status, one.progress, one.part_of, len(one.also)) for one in events
        ]
        now, self._unstored = self._clock(), events
        if (
            self._states is None
            or self._states[1] != states
            or now - self._states[0] >= STATE_SECONDS
        ):
            self._states, self._unstored = (now, states), None
            note_states(self._store, events)


def _evidence(events: Sequence[Event]) -> dict[str, float]:
    last = {one.stream: one for one in events}
    found: dict[str, float] = {}
    for event in last.values():
        if event.evidence is not None:
            found[event.watch] = max(found.get(event.watch, 0.0), event.evidence)
    return found


DELAY: Final = timedelta(seconds=10)
"""How long a turn that has ended may take to reach the log."""


class LogEnd:
    """Asks a log where it ends, and then waits until a store has landed everything before that."""

    def __init__(
        self,
        source: CaseSource,
        store: Store,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        self._source, self._store, self._now = source, store, now
        self._asked: tuple[datetime, Mapping[Partition, Bounds]] | None = None
        self._read_to: datetime | None = None

    def read_to(self) -> datetime | None:
        """Return the time before which every turn that had ended has landed; None before that is known.

        Asks the log, so not for each record.
        """
        if self._asked is not None:
            at, ends = self._asked
            self._store.join()
            landed = stored_offsets(self._store)
            if all(landed.get(one, start) >= end for one, (start, end) in ends.items()):
                self._read_to, self._asked = at - DELAY, None
        if self._asked is None:
            at = self._now()
            try:
                self._asked = at, self._source.bounds(waits=False)
            except InputError:  # it is away, of which the next poll tells
                return self._read_to
        return self._read_to
