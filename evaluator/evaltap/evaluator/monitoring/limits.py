"""A fixed limit on a share or mean: raise an alarm if the whole 95 % interval of a window is beyond it.

The window ends every five minutes in which there was a turn, and contains the turns that started in it, so
later turns change nothing about it.  It slides: the cost of a long history grows with its turns only.
"""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.estimate import Cell, Profile, estimate
from evaltap.evaluator.monitoring.evidence import filter_of, rates_of
from evaltap.evaluator.monitoring.incidents import bad_span
from evaltap.evaluator.monitoring.measures import Found, unit_of
from evaltap.evaluator.monitoring.model import Event, Status
from evaltap.evaluator.monitoring.turns import (
    EXAMPLES,
    MOST_POINTS,
    Changes,
    Counting,
    WatchedTurn,
    by_value,
    cells_of,
    counting_of,
    mean_of_turns,
    read_turns,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.times import shifted
from evaltap.schemas.formats.monitor import Watch
from evaltap.schemas.text import counted

_EVERY: Final = timedelta(minutes=5)
_FEWEST: Final = 10
"""The minimum effective number of sessions for a decision."""
_Cells = tuple[Cell, ...]


class _Point(NamedTuple):
    """The state at the beginning of a day."""

    day: date
    state: "_State"


class _State(NamedTuple):
    firing: bool = False
    events: tuple[Event, ...] = ()
    seen: tuple[datetime, Found] | None = None
    """The end of the last window and its result; None if it had none."""


class _Window:
    """The turns of the last hours, by session."""

    def __init__(self, hours: int, *, mean: bool) -> None:
        self._length = timedelta(hours=hours)
        self._mean = mean
        self.turns: deque[WatchedTurn] = deque()
        self._sessions: dict[int, list[WatchedTurn]] = {}
        self._profiles: Counter[_Cells] = Counter()

    def slide(self, turns: Sequence[WatchedTurn], ends: datetime) -> None:
        """Add turns, and drop those that started before the window that now ends."""
        begins = shifted(ends, -self._length)
        changed: dict[int, _Cells] = {}
        for turn in turns:
            self._note(changed, turn.session)
            self.turns.append(turn)
            self._sessions.setdefault(turn.session, []).append(turn)
        while self.turns and self.turns[0].started_at < begins:
            turn = self.turns.popleft()
            self._note(changed, turn.session)
            self._sessions[turn.session].pop(0)
        for session, cells in changed.items():
            self._profiles[cells] -= 1
            if self._profiles[cells] <= 0:
                del self._profiles[cells]
            if self._sessions[session]:
                self._profiles[self._cells(session)] += 1
            else:
                del self._sessions[session]

    def _note(self, changed: dict[int, _Cells], session: int) -> None:
        if session not in changed:
            changed[session] = self._cells(session)

    def _cells(self, session: int) -> _Cells:
        return () if self._mean else cells_of(self._sessions.get(session, ()))

    def estimate(self) -> Found | None:
        """Return the share or mean in the window; None if there are too few sessions for a decision."""
        if self._mean:
            return mean_of_turns(self._sessions.values(), fewest=_FEWEST)
        found = estimate([Profile(cells, count) for cells, count in self._profiles.items()])
        if found is None or found.effective_sessions < _FEWEST:
            return None
        return Found(found.rate.value, *found.rate.interval, found.rate.n, found.sessions)


class LimitWatch:
    """Evaluates the turns of a watch repeatedly; the result is that of a first evaluation.

    The result of a completed day is stored and reused as long as nothing changes within it.
    """

    def __init__(self, watch: Watch) -> None:
        self._watch = watch
        self._counting: Counting | None = None
        self._points: dict[tuple[tuple[str, str], ...], list[_Point]] = {}

    def evaluate(
        self, store: StoreReader, changes: Changes, until: datetime | None
    ) -> Sequence[Event]:
        """Return the alarms in all stored turns, and the state of streams without one that is on."""
        if self._counting is None or not self._counting.holds(changes, self._watch.metric):
            self._counting, self._points = counting_of(store, self._watch), {}
        if self._counting is None:
            return [Event(self._watch.name, {}, "no_data", None)]
        for points in self._points.values():
            while points and changes.since.date() < points[-1].day:
                points.pop()
        found: list[Event] = []
        for slice_, turns in self._streams(store, self._counting):
            ordered = sorted(turns, key=lambda one: one.started_at)
            found += self._evaluate_stream(slice_, ordered, until)
        return found or [Event(self._watch.name, {}, "no_data", None)]

    def _streams(
        self, store: StoreReader, counting: Counting
    ) -> Iterator[tuple[Mapping[str, str], Sequence[WatchedTurn]]]:
        """Yield the turns of the whole traffic and of its slices."""
        points = self._points.get((), [])
        # All turns decide which values have their own stream.
        since = points[-1].day if points and not self._watch.by else None
        yield {}, read_turns(store, self._watch, counting, since=self._from(since))
        for by in self._watch.by:
            sliced = by_value(read_turns(store, self._watch, counting, by), date.max)
            for value, turns in sorted(sliced.items()):
                yield {by: value}, turns

    def _from(self, day: date | None) -> datetime | None:
        """Return the beginning of the days that the first window of a day covers."""
        if day is None:
            return None
        before = timedelta(days=1, hours=self._watch.hours)
        return shifted(datetime.combine(day, time(), UTC), -before)

    def _evaluate_stream(
        self, slice_: Mapping[str, str], turns: Sequence[WatchedTurn], until: datetime | None
    ) -> Iterator[Event]:
        """Yield the beginnings and ends of alarms in sorted turns, and the state if no alarm is on.

        With `until`, a window does not count before its end.
        """
        if not turns:
            return
        points = self._points.setdefault(tuple(slice_.items()), [])
        state, begins = (points[-1].state, points[-1].day) if points else (_State(), date.min)
        window = _Window(self._watch.hours, mean=bool(unit_of(self._watch)))
        done = 0
        for ends in dict.fromkeys(_end_of(turn.started_at) for turn in turns):
            day = (ends - _EVERY).date()
            if until is not None and ends > until:
                break
            place = bisect_left(turns, ends, lo=done, key=lambda one: one.started_at)
            window.slide(turns[done:place], ends)
            done = place
            if day < begins:
                continue
            if not points or day > points[-1].day:
                points.append(_Point(day, state))
                del points[:-MOST_POINTS]
            state = self._after(ends, window, state, slice_)
        yield from state.events
        if state.firing:
            return
        if state.seen is None:
            few = (
                f"effectively fewer than {_FEWEST} sessions in {counted(self._watch.hours, 'hour')}"
            )
            if not done:
                few = "the first five minutes have not ended"
            yield Event(self._watch.name, slice_, "learning", turns[-1].started_at, progress=few)
        else:
            yield _event(self._watch, slice_, "ok", *state.seen)

    def _after(
        self, ends: datetime, window: _Window, state: _State, slice_: Mapping[str, str]
    ) -> _State:
        watch = self._watch
        if (found := window.estimate()) is None:
            return state._replace(seen=None)
        firing, events = state.firing, state.events
        if not firing and _beyond(watch, found.low, found.high):
            firing = True
            event = _event(watch, slice_, "firing", ends, found, window.turns[0].started_at)
            events += (_with_cases(event, watch, window.turns),)
        elif firing and not _beyond(watch, found.value, found.value):
            firing = False
            events += (_event(watch, slice_, "resolved", ends, found),)
        return _State(firing, events, (ends, found))


def _end_of(moment: datetime) -> datetime:
    begun = moment.replace(minute=moment.minute - moment.minute % 5, second=0, microsecond=0)
    return shifted(begun, _EVERY)


def _beyond(watch: Watch, low: float, high: float) -> bool:
    return (watch.below is not None and high < watch.below) or (
        watch.above is not None and low > watch.above
    )


def _event(
    watch: Watch,
    slice_: Mapping[str, str],
    status: Status,
    at: datetime,
    found: Found,
    since: datetime | None = None,
) -> Event:
    limits = [one for one in (watch.below, watch.above) if one is not None]
    passed = watch.below if watch.below is not None and found.value < watch.below else limits[-1]
    figures = found._asdict()
    rate = figures.pop("value")
    return Event(watch.name, slice_, status, at, since, rate_after=rate, most=passed, **figures)


def _with_cases(event: Event, watch: Watch, turns: Iterable[WatchedTurn]) -> Event:
    bad = [turn for turn in turns if turn.bad > 0]
    if unit_of(watch):  # of a mean, those whose own values are beyond the limit
        bad = [turn for turn in turns if _beyond(watch, turn.amount, turn.amount)]
        bad.sort(key=lambda turn: -abs(turn.amount - (event.most or 0.0)))
    cases = dict.fromkeys(turn.eval_id for turn in bad)
    within = filter_of(watch, event.slice, (), event.since, event.at)
    span = bad_span(event.since or datetime.min, bad)
    rates = rates_of(turns, event.at or datetime.max)
    return replace(event, cases=tuple(cases)[:EXAMPLES], cases_filter=within, bad=span, rates=rates)
