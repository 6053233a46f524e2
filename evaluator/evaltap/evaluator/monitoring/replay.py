"""Run watches over stored traffic: the alarms that they would have raised, reproducibly."""

from collections.abc import Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from datetime import UTC, datetime, time, timedelta
from typing import Final, NamedTuple, Protocol

from evaltap.evaluator.analysis.estimates.scope import Scope, Signal
from evaltap.evaluator.analysis.estimates.turns import Turns, choose_turns
from evaltap.evaluator.monitoring.incidents import joined
from evaltap.evaluator.monitoring.learned import LearnedWatch
from evaltap.evaluator.monitoring.limits import LimitWatch
from evaltap.evaluator.monitoring.measures import unit_of
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.rules import SILENCE, chance_of, start_of, where_of
from evaltap.evaluator.monitoring.turns import ChangeFinder, Changes, quantiles_of
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import stored_time
from evaltap.schemas.formats.monitor import MonitorFile, Watch


class _Point(NamedTuple):
    """The state at the beginning of a day."""

    day: datetime
    last: datetime
    """The last turn."""
    events: Sequence[Event]


class SilenceWatch:
    """Searches for gaps repeatedly, starting at the beginning of the newest day if no older day changed."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._longest = timedelta(minutes=watch.minutes)
        self._point: _Point | None = None

    def evaluate(
        self, store: StoreReader, changes: Changes, until: datetime | None
    ) -> Sequence[Event]:
        """Return all gaps up to `until`, with the one that it ends; later turns, of fast clocks, end none."""
        point = self._point
        if point is not None and changes.since < point.day:
            point = None
        with self._turns(store, None if point is None else point.day, until) as turns:
            if point is None:
                ((newest,),) = turns.rows(_NEWEST)
                if newest is None:
                    return [Event(self._watch.name, {}, "no_data", None)]
                day = datetime.combine(newest, time())
                gaps, last = self._gaps(turns, None, None, day)
                if last is not None:
                    self._point = point = _Point(day, last, gaps)
            begin, before, found = (None, None, ()) if point is None else point
            gaps, last = self._gaps(turns, begin, before, None)
        return [*found, *gaps, self._now(last or before, until)]

    def _turns(
        self, store: StoreReader, since: datetime | None, until: datetime | None
    ) -> AbstractContextManager[Turns]:
        times = (start_of(store, self._watch.name), since and since.replace(tzinfo=UTC))
        scope = Scope(
            where=where_of(self._watch, {}),
            since=max((one for one in times if one), default=None),
            until=until and until.replace(tzinfo=UTC) + timedelta(microseconds=1),
            traffic=True,
        )
        return choose_turns(store, scope, [], Signal("TRUE", "TRUE"))

    def _gaps(
        self, turns: Turns, since: datetime | None, before: datetime | None, until: datetime | None
    ) -> tuple[list[Event], datetime | None]:
        """Return the gaps within a period, and its last turn; `before` is the last turn before the period."""
        given = {"since": since, "until": until, "before": before}
        found: list[Event] = []
        for one, other in turns.rows(_GAPS, given | {"longest": self._longest}):
            found.append(Event(self._watch.name, {}, "firing", one + self._longest, one))
            found.append(Event(self._watch.name, {}, "resolved", other, one))
        ((last,),) = turns.rows(_LAST, {"since": since, "until": until})
        return found, last

    def _now(self, last: datetime | None, until: datetime | None) -> Event:
        if last is not None and until is not None and until - last > self._longest:
            return Event(self._watch.name, {}, "firing", last + self._longest, last)
        return Event(self._watch.name, {}, "ok", last)


_NEWEST: Final = "SELECT max(started_at)::DATE FROM {turns}"
_LAST: Final = """
SELECT max(started_at) FROM {turns}
WHERE ($since::TIMESTAMP IS NULL OR started_at >= $since)
  AND ($until::TIMESTAMP IS NULL OR started_at < $until)
"""
_GAPS: Final = """
SELECT before, started_at FROM (
  SELECT started_at, lag(started_at, 1, $before::TIMESTAMP) OVER (ORDER BY started_at) AS before
  FROM {turns}
  WHERE started_at IS NOT NULL AND ($since::TIMESTAMP IS NULL OR started_at >= $since)
    AND ($until::TIMESTAMP IS NULL OR started_at < $until)
)
WHERE started_at - before > $longest ORDER BY started_at
"""


class IncrementalWatch(Protocol):
    """A watch that remembers its previous evaluations."""

    def evaluate(
        self, store: StoreReader, changes: Changes, until: datetime | None
    ) -> Sequence[Event]:
        """Return all its alarms in chronological order, and its state if none is on."""
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

    def evaluate(
        self,
        store: StoreReader,
        now: datetime | None = None,
        *,
        silent_to: datetime | None = None,
        leading: Collection[tuple[object, ...]] = (),
    ) -> list[Event]:
        """Return the alarms of all watches in chronological order, and the state of those without one.

        Alarms of one cause are one, as in `incidents.joined`; `leading` are the streams of known alarms.
        With `now` (aware), sessions that may not have ended do not count yet.  All turns before `silent_to`
        (aware) are stored, so that a silence without a turn after it counts up to then.  Raises InputError
        for an unknown slice.
        """
        until, silent = (None if one is None else stored_time(one) for one in (now, silent_to))
        try:
            changes = self._changes.find(store)
            found = [
                event
                for one in self._watches
                for event in one.evaluate(
                    store, changes, silent if isinstance(one, SilenceWatch) else until
                )
            ]
        except BaseException:
            self._forget()  # some watches have seen the changes, others have not
            raise
        found = joined(described(found, self._rules), leading)
        return sorted(found, key=lambda event: (event.at or datetime.min, event.watch))


def replay(store: StoreReader, rules: MonitorFile, *, now: datetime | None = None) -> list[Event]:
    """Return the alarms of a first evaluation, for which silence ends with the last turn, and the state of
    watches without any.

    Alarms that are part of another one are listed there only.
    """
    found = [event for event in Watches(rules).evaluate(store, now) if not event.part_of]
    turned = {event.stream for event in found if event.status in ("firing", "resolved")}
    return [event for event in found if event.status != "ok" or event.stream not in turned]


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
        unit=unit_of(watch),
    )


def _incremental_watches(watch: Watch, rules: MonitorFile) -> Sequence[IncrementalWatch]:
    if watch.signal == SILENCE:
        return [SilenceWatch(watch)]
    if watch.has_limit:
        return [LimitWatch(watch)]
    quiet = timedelta(minutes=rules.quiet_minutes)
    quantiles = quantiles_of(watch)
    chance = chance_of(watch, rules) / len(quantiles)
    return [LearnedWatch(watch, chance, quiet, one) for one in quantiles]
