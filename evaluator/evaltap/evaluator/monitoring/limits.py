"""A fixed limit on a share: raise an alarm if the whole 95 % interval of a window is beyond it.

The window ends with each full hour that had a session, and consists of counts of similar sessions, so the
cost of a long history grows with its hours only.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.estimate import Cell, Estimate, Profile, estimate
from evaltap.evaluator.monitoring.evidence import filter_of
from evaltap.evaluator.monitoring.model import Event, Status
from evaltap.evaluator.monitoring.turns import (
    EXAMPLES,
    MOST_POINTS,
    Changes,
    Counting,
    WatchedSession,
    WatchedTurn,
    by_value,
    cells_of,
    counting_of,
    has_ended,
    read_turns,
    sessions_of,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import Watch

_HOUR: Final = timedelta(hours=1)
_FEWEST: Final = 10
"""The minimum effective number of sessions for a decision."""
_Cells = tuple[Cell, ...]


class _Point(NamedTuple):
    """The state at the beginning of a day."""

    day: date
    state: "_State"


class _State(NamedTuple):
    """The result of the hours so far."""

    firing: bool = False
    events: tuple[Event, ...] = ()
    seen: tuple[datetime, Estimate] | None = None
    """The last hour with a result, and the result."""


@dataclass(frozen=True, slots=True)
class _Stream:
    """The whole traffic of a watch, or a slice of it."""

    slice: Mapping[str, str]
    sessions: Sequence[WatchedSession]


class LimitWatch:
    """Evaluates the turns of a watch repeatedly; the result is that of a first evaluation.

    The result of a completed day is stored and reused as long as nothing changes within it.
    """

    def __init__(self, watch: Watch, quiet: timedelta) -> None:
        self._watch = watch
        self._quiet = quiet
        self._counting: Counting | None = None
        self._points: dict[tuple[tuple[str, str], ...], list[_Point]] = {}

    def evaluate(
        self, store: StoreReader, changes: Changes, until: datetime | None
    ) -> Sequence[Event]:
        """Return the alarms in all stored turns, and the state of streams without alarms."""
        if self._counting is None or not self._counting.holds(changes, self._watch.metric):
            self._counting, self._points = counting_of(store, self._watch), {}
        if self._counting is None:
            return [Event(self._watch.name, {}, "no_data", None)]
        for points in self._points.values():
            while points and changes.since.date() < points[-1].day:
                points.pop()
        found: list[Event] = []
        for stream in self._streams(store, self._counting):
            found += self._evaluate_stream(stream, until)
        return found or [Event(self._watch.name, {}, "no_data", None)]

    def _streams(self, store: StoreReader, counting: Counting) -> Iterator[_Stream]:
        points = self._points.get((), [])
        # All turns decide which values have their own stream.
        since = points[-1].day if points and not self._watch.by else None
        yield self._stream({}, read_turns(store, self._watch, counting, since=self._from(since)))
        for by in self._watch.by:
            sliced = by_value(read_turns(store, self._watch, counting, by), date.max)
            for value, turns in sorted(sliced.items()):
                yield self._stream({by: value}, turns)

    def _from(self, day: date | None) -> datetime | None:
        """Return the beginning of the days that the first window of a day covers."""
        if day is None:
            return None
        return datetime.combine(day, time(), UTC) - timedelta(days=1, hours=self._watch.hours)

    def _stream(self, slice_: Mapping[str, str], turns: Sequence[WatchedTurn]) -> _Stream:
        return _Stream(slice_, sessions_of(turns))

    def _evaluate_stream(self, stream: _Stream, until: datetime | None) -> Iterator[Event]:
        """Yield the beginnings and ends of alarms, or the state if there was none.

        With `until`, the current hour is ignored until it is over.
        """
        sessions = [one for one in stream.sessions if has_ended(one, until, self._quiet)]
        if not sessions:
            return
        points = self._points.setdefault(tuple(stream.slice.items()), [])
        state, begins = (points[-1].state, points[-1].day) if points else (_State(), date.min)
        hours = self._hours(sessions)
        open_days = [one.began.date() for one in stream.sessions if one not in sessions]
        for hour in hours:
            if hour.date() < begins or (until is not None and hour + _HOUR > until):
                continue
            new = not points or hour.date() > points[-1].day
            if new and hour.date() <= min(open_days, default=date.max):
                points.append(_Point(hour.date(), state))
                del points[:-MOST_POINTS]
            state = self._after(hour, hours, state, stream.slice, sessions)
        yield from state.events
        if state.seen is None:
            yield Event(self._watch.name, stream.slice, "learning", sessions[-1].ended)
        elif not state.events:
            yield _event(self._watch, stream.slice, "ok", *state.seen)

    def _hours(self, sessions: Sequence[WatchedSession]) -> Mapping[datetime, Counter[_Cells]]:
        found: dict[datetime, Counter[_Cells]] = {}
        good = self._watch.signal == "pass_rate"
        for session in sessions:
            hour = session.began.replace(minute=0, second=0, microsecond=0)
            found.setdefault(hour, Counter())[cells_of(session, good=good)] += 1
        return found

    def _after(
        self,
        hour: datetime,
        hours: Mapping[datetime, Counter[_Cells]],
        state: _State,
        slice_: Mapping[str, str],
        sessions: Sequence[WatchedSession],
    ) -> _State:
        """Return the state after an hour."""
        watch, ends = self._watch, hour + _HOUR
        begins = ends - timedelta(hours=watch.hours)
        found = _estimate(hours, begins, ends)
        if found is None:
            return state
        firing, events = state.firing, state.events
        if not firing and _beyond(watch, *found.rate.interval):
            firing = True
            within = [one for one in sessions if begins <= one.began < ends]
            event = _event(watch, slice_, "firing", ends, found, within[0].began)
            events += (_with_cases(event, watch, within),)
        elif firing and not _beyond(watch, found.rate.value, found.rate.value):
            firing = False
            events += (_event(watch, slice_, "resolved", ends, found),)
        return _State(firing, events, (ends, found))


def _estimate(
    hours: Mapping[datetime, Counter[_Cells]], begins: datetime, ends: datetime
) -> Estimate | None:
    window: Counter[_Cells] = Counter()
    at = begins
    while at < ends:
        window += hours.get(at, Counter())
        at += _HOUR
    found = estimate([Profile(cells, count) for cells, count in window.items()])
    return None if found is None or found.effective_sessions < _FEWEST else found


def _beyond(watch: Watch, low: float, high: float) -> bool:
    return (watch.below is not None and high < watch.below) or (
        watch.above is not None and low > watch.above
    )


def _event(
    watch: Watch,
    slice_: Mapping[str, str],
    status: Status,
    at: datetime,
    found: Estimate,
    since: datetime | None = None,
) -> Event:
    rate = found.rate
    limits = [one for one in (watch.below, watch.above) if one is not None]
    passed = watch.below if watch.below is not None and rate.value < watch.below else limits[-1]
    low, high = rate.interval
    return Event(
        watch.name, slice_, status, at, since, None, rate.value, passed, low=low, high=high,
        turns=rate.n, sessions=found.sessions,
    )  # fmt: skip


def _with_cases(event: Event, watch: Watch, sessions: Sequence[WatchedSession]) -> Event:
    cases = dict.fromkeys(
        turn.eval_id for session in sessions for turn in session.turns if turn.bad
    )
    within = filter_of(watch, event.slice, (), event.since, event.at)
    return replace(event, cases=tuple(cases)[:EXAMPLES], cases_filter=within)
