"""Runs watches over what is stored: the alarms that they would have raised, always the same ones."""

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from evaltap.evaluator.monitoring.changes import ChangeFinder, Changes
from evaltap.evaluator.monitoring.learned import LearnedWatch
from evaltap.evaluator.monitoring.limits import LimitWatch
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.rules import SILENCE, chance_of
from evaltap.evaluator.monitoring.silences import SilenceWatch
from evaltap.evaluator.monitoring.turns import quantiles_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.formats.monitor import MonitorFile, Watch


class Looking(Protocol):
    """A watch that keeps in mind what it has seen."""

    def look(self, store: StoreReader, changes: Changes, until: datetime | None) -> Sequence[Event]:
        """Return all its alarms in the order of time, and its state where there was none."""
        ...


class Watches:
    """The watches of a file, which are looked at again and again: a look costs what is new.

    What a look finds is what a first look at the same rows would have found.
    """

    def __init__(self, rules: MonitorFile) -> None:
        self._rules = rules
        self._forget()

    def _forget(self) -> None:
        self._changes = ChangeFinder()
        self._looking = [one for watch in self._rules.watch for one in _looking(watch, self._rules)]

    def look(self, store: StoreReader, now: datetime | None = None) -> list[Event]:
        """Return the alarms of all watches in the order of time, and the state of the others.

        With `now` (aware), traffic continues: sessions that may not have ended do not count yet, and a
        silence lasts that has no turn after it.  Raises InputError for a slice that is not there.
        """
        until = None if now is None else stored_time(now)
        try:
            changes = self._changes.find(store)
            found = [event for one in self._looking for event in one.look(store, changes, until)]
        except BaseException:
            self._forget()  # some have seen the changes, and others not
            raise
        found = silenced(found, self._rules)
        return sorted(found, key=lambda event: (event.at or datetime.min, event.watch))


def replay(store: StoreReader, rules: MonitorFile, *, now: datetime | None = None) -> list[Event]:
    """Return what a first look finds; `now` as in `Watches.look`."""
    return Watches(rules).look(store, now)


def silenced(events: Sequence[Event], rules: MonitorFile) -> list[Event]:
    """Return events with the time until which the rules silence their watch."""
    ends = {
        one.name: stored_time(one.silence_ends)
        for one in rules.watch
        if one.silence_ends is not None
    }
    return [replace(one, silenced_until=ends.get(one.watch)) for one in events]


def _looking(watch: Watch, rules: MonitorFile) -> Sequence[Looking]:
    if watch.signal == SILENCE:
        return [SilenceWatch(watch)]
    quiet = timedelta(minutes=rules.quiet_minutes)
    if watch.has_limit:
        return [LimitWatch(watch, quiet)]
    quantiles = quantiles_of(watch)
    chance = chance_of(watch, rules) / len(quantiles)
    return [LearnedWatch(watch, chance, quiet, one) for one in quantiles]
