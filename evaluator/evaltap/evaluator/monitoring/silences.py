"""A watch on silence: an alarm for each gap between two turns that is too long, and for an ongoing one."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime, time, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.scope import Scope, Signal
from evaltap.evaluator.analysis.estimates.turns import Turns, choose_turns
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.rules import start_of, where_of
from evaltap.evaluator.monitoring.turns import Changes
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import Watch


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
        """Return all stored gaps, and the one up to `until`."""
        point = self._point
        if point is not None and changes.since < point.day:
            point = None
        with self._turns(store, None if point is None else point.day) as turns:
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
        return [*found, *gaps, *self._now(last or before, until, none=not (found or gaps))]

    def _turns(self, store: StoreReader, since: datetime | None) -> AbstractContextManager[Turns]:
        times = (start_of(store, self._watch.name), since and since.replace(tzinfo=UTC))
        scope = Scope(
            where=where_of(self._watch, {}), since=max((one for one in times if one), default=None)
        )
        return choose_turns(store, scope, [], Signal("TRUE", "TRUE"))

    def _gaps(
        self,
        turns: Turns,
        since: datetime | None,
        before: datetime | None,
        until: datetime | None,
    ) -> tuple[list[Event], datetime | None]:
        """Return the gaps within a period, and its last turn; `before` is the last turn before the period."""
        given = {"since": since, "until": until, "before": before}
        found: list[Event] = []
        for one, other in turns.rows(_GAPS, given | {"longest": self._longest}):
            found.append(Event(self._watch.name, {}, "firing", one + self._longest, one))
            found.append(Event(self._watch.name, {}, "resolved", other, one))
        ((last,),) = turns.rows(_LAST, {"since": since, "until": until})
        return found, last

    def _now(self, last: datetime | None, until: datetime | None, *, none: bool) -> Sequence[Event]:
        if last is not None and until is not None and until - last > self._longest:
            return [Event(self._watch.name, {}, "firing", last + self._longest, last)]
        return [Event(self._watch.name, {}, "ok", last)] if none else []


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
