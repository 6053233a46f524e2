"""Run watches over stored traffic: the alarms that they would have raised, reproducibly."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from evaltap.evaluator.monitoring.learned import LearnedWatch
from evaltap.evaluator.monitoring.limits import LimitWatch
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.rules import SILENCE, chance_of
from evaltap.evaluator.monitoring.silences import SilenceWatch
from evaltap.evaluator.monitoring.turns import ChangeFinder, Changes, quantiles_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.formats.monitor import MonitorFile, Watch


class IncrementalWatch(Protocol):
    """A watch that remembers its previous evaluations."""

    def evaluate(
        self, store: StoreReader, changes: Changes, until: datetime | None
    ) -> Sequence[Event]:
        """Return all its alarms in chronological order, and its state if there were none."""
        ...


class Watches:
    """The watches of a file, evaluated repeatedly: the cost depends on new rows only.

    The result is the same as that of a first evaluation of the same rows.
    """

    def __init__(self, rules: MonitorFile) -> None:
        self._rules = rules
        self._forget()

    def _forget(self) -> None:
        self._changes = ChangeFinder()
        self._watches = [
            one for watch in self._rules.watch for one in _incremental_watches(watch, self._rules)
        ]

    def evaluate(self, store: StoreReader, now: datetime | None = None) -> list[Event]:
        """Return the alarms of all watches in chronological order, and the state of the others.

        With `now` (aware), traffic continues: sessions that may not have ended do not count yet, and a
        silence continues that has no turn after it.  Raises InputError for an unknown slice.
        """
        until = None if now is None else stored_time(now)
        try:
            changes = self._changes.find(store)
            found = [
                event for one in self._watches for event in one.evaluate(store, changes, until)
            ]
        except BaseException:
            self._forget()  # some watches have seen the changes, others have not
            raise
        found = described(found, self._rules)
        return sorted(found, key=lambda event: (event.at or datetime.min, event.watch))


def replay(store: StoreReader, rules: MonitorFile, *, now: datetime | None = None) -> list[Event]:
    """Return the result of a first evaluation; `now` as in `Watches.evaluate`."""
    return Watches(rules).evaluate(store, now)


def described(events: Sequence[Event], rules: MonitorFile) -> list[Event]:
    """Return events with what their watch measures, and the time until which the rules silence it."""
    watches = {one.name: one for one in rules.watch}
    return [_described(one, watches.get(one.watch)) for one in events]


def _described(event: Event, watch: Watch | None) -> Event:
    if watch is None:
        return replace(event, silenced_until=None)
    ends = watch.silence_ends
    metric = f" of {watch.metric}" if watch.metric not in ("", watch.name) else ""
    return replace(
        event,
        silenced_until=None if ends is None else stored_time(ends),
        measure=f"{watch.signal}{metric}",
    )


def _incremental_watches(watch: Watch, rules: MonitorFile) -> Sequence[IncrementalWatch]:
    if watch.signal == SILENCE:
        return [SilenceWatch(watch)]
    quiet = timedelta(minutes=rules.quiet_minutes)
    if watch.has_limit:
        return [LimitWatch(watch, quiet)]
    quantiles = quantiles_of(watch)
    chance = chance_of(watch, rules) / len(quantiles)
    return [LearnedWatch(watch, chance, quiet, one) for one in quantiles]
