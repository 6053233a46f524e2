"""A watch that learns what is normal, and raises an alarm when a share of turns, or a mean, is worse.

An evaluation continues from the beginning of a day at which an earlier one stopped, so its cost depends on
that day and not on all stored turns.
"""

from bisect import bisect_right
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby, product
from typing import NamedTuple, Self

from evaltap.evaluator.analysis.estimates.scope import SLICES
from evaltap.evaluator.analysis.stats.detector import (
    BadTurns,
    Detector,
    Recovery,
    Usual,
    longest_session,
    share_of,
    usual,
)
from evaltap.evaluator.analysis.stats.estimate import Profile, estimate
from evaltap.evaluator.analysis.stats.rate import wilson_of
from evaltap.evaluator.monitoring.changed import Candidate, Spans, changed_slices, explaining
from evaltap.evaluator.monitoring.evidence import example_cases, filter_of, rates_of
from evaltap.evaluator.monitoring.incidents import bad_span
from evaltap.evaluator.monitoring.measures import Found, is_good, unit_of
from evaltap.evaluator.monitoring.model import BadSpan, Changed, Event, Status
from evaltap.evaluator.monitoring.turns import (
    LEAST_DAYS,
    LEAST_SESSIONS,
    MOST_POINTS,
    OTHER,
    Changes,
    Counting,
    Step,
    WatchedSession,
    WatchedTurn,
    by_value,
    cells_of,
    counting_of,
    counts_at_once,
    has_ended,
    mean_of_turns,
    read_turns,
    sessions_of,
    turns_of,
)
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import Watch
from evaltap.schemas.text import counted


@dataclass(slots=True)
class _Day:
    day: date
    sessions: int = 0
    bad: float = 0.0
    weight: float = 0.0
    squares: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """The sums of bad * bad, bad * weight and weight * weight."""
    expected: float = 0.0
    """The bad turns that are usual."""

    def add(self, session: BadTurns, before: BadTurns | None, most: float) -> None:
        """Count a session, of which `before` is counted already."""
        seen = BadTurns(0, 0) if before is None else before
        self.sessions += before is None
        self.bad += session.bad - seen.bad
        self.weight += session.weight - seen.weight
        self.expected += most * (session.weight - seen.weight)
        self.squares = (
            self.squares[0] + session.bad**2 - seen.bad**2,
            self.squares[1] + session.bad * session.weight - seen.bad * seen.weight,
            self.squares[2] + session.weight**2 - seen.weight**2,
        )


class Alarms:
    """Raises an alarm, waits until the stream has recovered, and starts again.

    It stores a few numbers for each day, and a copy continues independently.
    """

    def __init__(self, known: Usual, largest: float, chance: float) -> None:
        self._known = known
        self._largest = largest
        self._chance = chance
        self._restart()

    def _restart(self) -> None:
        self._detector = Detector(self._known, self._largest, self._chance)
        self._days: list[_Day] = []
        self._recovery: Recovery | None = None
        self._today: date | None = None

    def copy(self) -> Self:
        found = type(self)(self._known, self._largest, self._chance)
        found._detector = self._detector.copy()
        found._days = [replace(one) for one in self._days]
        found._recovery = None if self._recovery is None else self._recovery.copy()
        found._today = self._today
        return found

    @property
    def firing(self) -> bool:
        return self._recovery is not None

    @property
    def evidence(self) -> float:
        """The evidence for a change, divided by the threshold of the alarm."""
        return self._detector.evidence

    @property
    def since(self) -> date:
        """The day since which the share is most likely higher."""
        return self._days[self._detector.began].day

    @property
    def share(self) -> float | None:
        """The share of bad turns: since the change while the alarm is on, otherwise over all watched days."""
        days = self._changed if self.firing else self._days
        weight = sum(one.weight for one in days)
        return sum(one.bad for one in days) / weight if weight else None

    @property
    def _changed(self) -> list[_Day]:
        return self._days[self._detector.began :]

    def observe(self, day: date, session: BadTurns, before: BadTurns | None = None) -> bool:
        """Process the next session; return whether the alarm begins.

        `before` is what has been processed of the same session already.
        """
        if not self._days or day > self._days[-1].day:
            self._days.append(_Day(day))
            self._detector.new_day()
        self._days[-1].add(session, before, self._known.most_of(session))
        if self._detector.observe(session, before):
            self._recovery = Recovery(self._known, self._detector.largest, self._excess())
        return self.firing

    def recovered(
        self, day: date, session: BadTurns, before: BadTurns | None = None
    ) -> float | None:
        """Process a session during an alarm; return the current share once the alarm is over, None before.

        It is over when it is improbable that the share is still what raised the alarm, and the share since
        then is one of a usual day.
        """
        assert self._recovery is not None
        if day != self._today:
            self._today = day
            self._recovery.new_day()
        if (share := self._recovery.observe(session, before)) is not None:
            self._largest = self._recovery.largest
            self._restart()
        return share

    def _excess(self) -> float:
        """Return by how much the share since the change is above the usual, at least."""
        days = self._changed
        bad, weight = sum(one.bad for one in days), sum(one.weight for one in days)
        share = max(0.0, min(1.0, bad / weight))
        bad_2, products, weight_2 = (
            sum(part) for part in zip(*(one.squares for one in days), strict=True)
        )
        spread = (bad_2 - 2 * share * products + share**2 * weight_2) / weight**2
        sessions = float(sum(one.sessions for one in days))
        trials = share * (1 - share) / spread if spread > 0 and share < 1 else sessions
        low = wilson_of(share, max(1.0, trials)).low
        return max(0.0, low - sum(one.expected for one in days) / weight)


@dataclass(frozen=True, slots=True)
class LearnedBaseline:
    """The baseline of a stream, learned from its first days."""

    usual: Usual
    longest: int
    """The number of turns that count in a session."""
    largest: float
    """The maximum weight of a session then."""
    ends: date
    """The first day after the baseline."""
    mean: Found | None = None
    """For means, that of the baseline, with no value cut."""


@dataclass(slots=True)
class _Stream:
    """The whole traffic of a watch, or a slice of it: what it has learned, and the events found since."""

    slice: Mapping[str, str]
    chance: float
    learned: LearnedBaseline | None = None
    alarms: Alarms | None = None
    events: tuple[Event, ...] = ()
    last: datetime | None = None
    """When its newest session ended."""
    progress: str = ""
    """How far it has learned."""

    def copy(self) -> "_Stream":
        return replace(self, alarms=None if self.alarms is None else self.alarms.copy())


class _Point(NamedTuple):
    """The state at the beginning of a day, when all sessions of the days before had ended."""

    day: date
    streams: Sequence[_Stream]


class LearnedWatch:
    """Evaluates the turns of a watch repeatedly; the result is that of a first evaluation.

    `chance` is the probability of a false alarm per month; `quantile` is one of `quantiles_of` the watch.
    """

    def __init__(
        self, watch: Watch, chance: float, quiet: timedelta, quantile: float | None = None
    ) -> None:
        self._watch = watch
        self._chance = chance
        self._quiet = quiet
        self._at_once = counts_at_once(watch)
        self._quantile = quantile
        self._counting: Counting | None = None
        self._kept: Mapping[str, frozenset[str]] = {}
        """The values of slices that have their own stream."""
        self._points: list[_Point] = []
        self._learning: tuple[datetime | None, ...] | None = None
        """While a stream learns: the hours of its last evaluation: of the clock, traffic and scores."""
        self._scored: datetime | None = None
        self._found: Sequence[Event] = ()
        self._explained: dict[tuple[object, ...], Event] = {}

    def evaluate(
        self, store: StoreReader, changes: Changes, until: datetime | None
    ) -> Sequence[Event]:
        """Return the alarms in all stored turns, and the state of streams without alarms."""
        self._explained = {
            key: one for key, one in self._explained.items() if one.at and one.at < changes.since
        }
        self._scored = max((one for one in (self._scored, changes.scored) if one), default=None)
        hours = _hour(until), _hour(changes.newest), _hour(self._scored)
        point = self._point(changes)
        learns_more = self._learning is not None and self._learning != hours
        if point is not None and not learns_more and (turns := self._read(store, point.day, until)):
            streams = [one.copy() for one in point.streams]
            sessions = [sessions_of(many) for many in turns]
            self._found = self._process_days(store, streams, sessions, until)
        elif learns_more or self._learning is None:
            self._found = self._from_the_first_turn(store, until)
            learning = any(one.status in ("learning", "waiting", "no_data") for one in self._found)
            self._learning = hours if learning else None
        return self._found

    def _point(self, changes: Changes) -> _Point | None:
        """Return the point to resume from; drop points after the changes."""
        if self._counting is None or not self._counting.holds(changes, self._watch.metric):
            self._points, self._learning = [], None
        while self._points and changes.since.date() < self._points[-1].day:
            self._points.pop()
        return self._points[-1] if self._points else None

    def _from_the_first_turn(self, store: StoreReader, until: datetime | None) -> Sequence[Event]:
        self._points, self._kept = [], {}
        self._counting = counting_of(store, self._watch, self._quantile)
        turns = [] if self._counting is None else self._turns(store, until=until)
        if not turns:
            return [Event(self._watch.name, {}, "no_data", None, quantile=self._quantile)]
        # Not days of the calendar, which a turn with a wrong clock, years before the others, would use up.
        days = sorted({turn.started_at.date() for turn in turns})
        begins = next(iter(days[self._watch.baseline_days :]), date.max)
        found = {("", ""): sessions_of(turns)}
        sessions = self._ended(found["", ""], until)
        learned = len(_baseline(sessions, begins))
        ends = sessions[learned].began.date() if learned < len(sessions) else date.max
        for by in self._watch.by:
            sliced = by_value(self._turns(store, by, until=until), ends)
            self._kept = {**self._kept, by: frozenset(sliced)}
            found |= {(by, value): sessions_of(many) for value, many in sorted(sliced.items())}
        # All streams share the probability of a false alarm.
        chance = self._chance / len(found)
        streams = []
        for (by, value), many in found.items():
            sessions = self._ended(many, until)
            learning = _baseline(sessions, begins)
            stream = _Stream({by: value} if by else {}, chance)
            stream.last = learning[-1].ended if learning else None
            stream.progress = self._progress(learning, days)
            if len(learning) < len(sessions):
                stream.learned = _learn(learning, self._watch, sessions[len(learning)].began.date())
                stream.alarms = Alarms(stream.learned.usual, stream.learned.largest, chance)
            streams.append(stream)
        return self._process_days(store, streams, [*found.values()], until)

    def _read(
        self, store: StoreReader, day: date, until: datetime | None
    ) -> list[Sequence[WatchedTurn]]:
        """Return the turns since a day, for each stream; nothing if there is a new stream."""
        found: list[Sequence[WatchedTurn]] = [self._turns(store, day=day, until=until)]
        for by in self._watch.by:
            turns = self._turns(store, by, day=day, until=until)
            sliced: dict[str, list[WatchedTurn]] = {one: [] for one in sorted(self._kept[by])}
            for turn in turns:
                if turn.value is not None:
                    named = turn.value if turn.value in sliced else OTHER
                    sliced.setdefault(named, []).append(turn)
            if sliced.keys() - self._kept[by]:
                return []
            found += sliced.values()
        return found

    def _turns(
        self, store: StoreReader, by: str = "", *, day: date | None = None, until: datetime | None
    ) -> list[WatchedTurn]:
        """Return the turns since a day; those after `until`, from a fast clock, have yet to come."""
        assert self._counting is not None
        since = None if day is None else datetime.combine(day, time(), UTC)
        ends = None if until is None else until.replace(tzinfo=UTC)
        return read_turns(store, self._watch, self._counting, by, since=since, until=ends)

    def _process_days(
        self,
        store: StoreReader,
        streams: Sequence[_Stream],
        sessions: Sequence[Sequence[WatchedSession]],
        until: datetime | None,
    ) -> Sequence[Event]:
        """Process the sessions of each day, and store a point at the beginning of each day."""
        days: dict[date, list[list[Step]]] = {}
        open_days = [
            one.began.date()
            for one in (sessions[0] if streams[0].learned else ())
            if not self._has_ended(one, until)
        ]
        for place, many in enumerate(sessions):
            learned = streams[place].learned
            for session in [] if learned is None else self._ended(many, until):
                assert learned is not None
                if (day := session.began.date()) >= learned.ends:
                    steps = days.setdefault(day, [[] for _ in streams])[place]
                    steps += session.steps(learned.longest, at_once=self._at_once)
        for day in sorted(days):
            if self._last_point < day <= min(open_days, default=date.max):
                self._points.append(_Point(day, [one.copy() for one in streams]))
                del self._points[:-MOST_POINTS]
            for stream, steps in zip(streams, days[day], strict=True):
                # In the order in which it becomes known, so that later turns change nothing before them.
                for step in sorted(steps, key=lambda one: one.at):
                    self._observe(stream, step)
        return self._with_reasons(store, streams)

    @property
    def _last_point(self) -> date:
        return self._points[-1].day if self._points else date.min

    def _observe(self, stream: _Stream, step: Step) -> None:
        alarms = stream.alarms
        assert alarms is not None
        stream.last = step.at
        if alarms.firing:
            if (share := alarms.recovered(step.day, step.session, step.before)) is not None:
                stream.events += (self._event(stream, "resolved", step.at, share),)
        elif alarms.observe(step.day, step.session, step.before):
            event = self._event(stream, "firing", step.at, alarms.share, alarms)
            stream.events += (event,)

    def _progress(self, learning: Sequence[WatchedSession], traffic: Sequence[date]) -> str:
        days = {one.began.date() for one in learning}
        day = bisect_right(traffic, max(days)) if days else 1
        if day <= self._watch.baseline_days:
            return f"day {day} of {self._watch.baseline_days}, {counted(len(learning), 'session')}"
        sessions = f"{len(learning)} of {LEAST_SESSIONS} sessions"
        return f"{counted(len(days), 'day')} of {LEAST_DAYS}, {sessions}"

    def _events(self, stream: _Stream) -> Iterator[Event]:
        if stream.alarms is None:
            status: Status = "waiting" if stream.last is None else "learning"
            progress = "" if stream.last is None else stream.progress
            yield Event(
                self._watch.name,
                stream.slice,
                status,
                stream.last,
                quantile=self._quantile,
                progress=progress,
            )
            return
        yield from stream.events
        if stream.last is not None and not stream.alarms.firing:
            yield self._event(stream, "ok", stream.last, stream.alarms.share, stream.alarms)

    def _event(
        self,
        stream: _Stream,
        status: Status,
        at: datetime,
        share: float | None,
        alarms: Alarms | None = None,
    ) -> Event:
        assert stream.learned is not None
        assert self._counting is not None
        known, scale = stream.learned.usual, self._counting.largest
        before, after, most = (
            None if one is None else (1 - one if is_good(self._watch) else one) * scale
            for one in (known.share, share, known.most)
        )
        since = datetime.combine(alarms.since, time()) if alarms and status == "firing" else None
        rates, evidence = (before, after, most), None if alarms is None else alarms.evidence
        name, quantile = self._watch.name, self._quantile
        return Event(name, stream.slice, status, at, since, *rates, evidence, quantile=quantile)

    def _with_reasons(self, store: StoreReader, streams: Sequence[_Stream]) -> Sequence[Event]:
        """Return all events; alarms have the slices that changed and example cases, found once for each."""
        found = [(event, one.learned) for one in streams for event in self._events(one)]
        new = [
            Raised(event, learned)
            for event, learned in found
            if learned and event.status == "firing" and _key(event) not in self._explained
        ]
        others = [one for one in new if OTHER in one.event.slice.values()]
        named = [one for one in new if OTHER not in one.event.slice.values()]
        if new:
            assert self._counting is not None
            known = explained(store, self._watch, self._counting, named)
            known += [self._with_others(store, one) for one in others]
            for one, event in zip([*named, *others], known, strict=True):
                self._explained[_key(one.event)] = event
        return [self._explained.get(_key(event), event) for event, _ in found]

    def _with_others(self, store: StoreReader, raised: "Raised") -> Event:
        """Return an alarm of the rare values, which have no condition of their own, with its bad turns."""
        event, learned = raised
        assert self._counting is not None
        assert event.since is not None
        (by,) = event.slice
        own = self._kept[by] - {OTHER}
        turns = [
            turn
            for turn in read_turns(
                store,
                self._watch,
                self._counting,
                by,
                since=event.since.replace(tzinfo=UTC),
                until=_just_after(event),
            )
            if turn.value is not None and turn.value not in own
        ]
        return replace(event, bad=_bad_span(event.since, turns, self._watch, learned))

    def _ended(
        self, sessions: Sequence[WatchedSession], until: datetime | None
    ) -> Sequence[WatchedSession]:
        return [one for one in sessions if self._has_ended(one, until)]

    def _has_ended(self, session: WatchedSession, until: datetime | None) -> bool:
        return self._at_once or has_ended(session, until, self._quiet)


class Raised(NamedTuple):
    """An alarm, and what its stream had learned."""

    event: Event
    learned: LearnedBaseline


def _key(event: Event) -> tuple[object, ...]:
    """Identify an alarm of a watch."""
    return (event.status, *event.slice.items(), event.at, event.since, event.rate_after)


def explained(
    store: StoreReader, watch: Watch, counting: Counting, alarms: Sequence[Raised]
) -> list[Event]:
    """Return alarms with their intervals, and the slices that changed since the baseline."""
    # The turns are read once by each slice, not once for each alarm.
    candidates: list[list[Candidate]] = [[] for _ in alarms]
    until = max(map(_just_after, (one.event for one in alarms)), default=None)
    good, scale = is_good(watch), counting.largest
    for own, by in product(("", *watch.by), SLICES):
        ours = [place for place, one in enumerate(alarms) if own == "".join(one.event.slice)]
        if not ours:
            continue
        with turns_of(store, watch, counting, [by, own] if own else [by], until=until) as turns:
            for place in ours:
                event, learned = alarms[place]
                assert event.since is not None
                ends = _just_after(event).replace(tzinfo=None)
                spans = Spans(datetime.combine(learned.ends, time()), event.since, ends)
                candidates[place] += changed_slices(
                    turns, spans, good=good, scale=scale, within=event.slice.get(own)
                )
    return [
        _explained(store, watch, counting, one, explaining(many))
        for one, many in zip(alarms, candidates, strict=True)
    ]


def _explained(
    store: StoreReader,
    watch: Watch,
    counting: Counting,
    alarm: Raised,
    changed: tuple[Changed, ...],
) -> Event:
    """Return an alarm with what changed.

    Its means are those of the values themselves, however large.
    """
    event, learned = alarm
    assert event.since is not None
    since, until = event.since.replace(tzinfo=UTC), _just_after(event)
    good = is_good(watch)
    whole = read_turns(store, watch, counting, "", event.slice, since=since, until=until)
    found = _since_change(whole, learned.longest, watch)
    within = dict(event.slice)
    if changed:
        within[changed[0].by] = changed[0].value
    with turns_of(store, watch, counting, (), within, since=since, until=until) as turns:
        cases = example_cases(turns, good=good, mean=bool(unit_of(watch)))
    listed = filter_of(watch, event.slice, changed, event.since, event.at)
    bad = _bad_span(event.since, whole, watch, learned)
    rates = rates_of(whole, until.replace(tzinfo=None))
    event = replace(event, changed=changed, cases=cases, cases_filter=listed, bad=bad, rates=rates)
    if found is None:
        return event
    if (mean := learned.mean) is not None and event.rate_before is not None:
        # The limit is known for values that are cut: the margin is kept.
        most = None if event.most is None else mean.value + event.most - event.rate_before
        event = replace(event, rate_before=mean.value, most=most)
    figures = found._asdict()
    return replace(event, rate_after=figures.pop("value"), **figures)


def _just_after(event: Event) -> datetime:
    """Return the aware end of the turns that raised an alarm, the last one included."""
    assert event.at is not None
    return event.at.replace(tzinfo=UTC) + timedelta(microseconds=1)


def _bad_span(
    begins: datetime, turns: Sequence[WatchedTurn], watch: Watch, learned: LearnedBaseline
) -> BadSpan:
    """Return the bad turns among those of an alarm; for a mean, those worse than usual."""
    over = learned.usual.share if unit_of(watch) else 0.0
    return bad_span(begins, [turn for turn in turns if turn.bad > over])


def _since_change(turns: Sequence[WatchedTurn], longest: int, watch: Watch) -> Found | None:
    """Return the share or mean since the change, from the turns that count in each session."""
    sessions = [one.turns[:longest] for one in sessions_of(turns)]
    if unit_of(watch):
        return mean_of_turns(sessions)
    if (found := estimate(Profile(cells_of(one)) for one in sessions)) is None:
        return None
    return Found(found.rate.value, *found.rate.interval, found.rate.n, found.sessions)


def _learn(sessions: Sequence[WatchedSession], watch: Watch, ends: date) -> LearnedBaseline:
    longest = longest_session([len(one.turns) for one in sessions])
    days = [
        [one.bad(longest) for one in day]
        for _, day in groupby(sessions, key=lambda one: one.began.date())
    ]
    smallest = watch.smallest_change
    if unit_of(watch) and not is_good(watch):  # a part of the usual mean
        smallest *= share_of([one for day in days for one in day])[0]
    heaviest = max(turn.weight for one in sessions for turn in one.turns)
    mean = mean_of_turns(one.turns[:longest] for one in sessions) if unit_of(watch) else None
    return LearnedBaseline(usual(days, smallest), longest, heaviest * longest, ends, mean)


def _baseline(sessions: Sequence[WatchedSession], begins: date) -> Sequence[WatchedSession]:
    """Return the sessions before a day, or before the first later day with enough days and sessions."""
    days: set[date] = set()
    for place, session in enumerate(sessions):
        day = session.began.date()
        enough = len(days) >= LEAST_DAYS and place >= LEAST_SESSIONS
        if enough and day >= begins and day not in days:
            return sessions[:place]
        days.add(day)
    return sessions


def _hour(moment: datetime | None) -> datetime | None:
    return None if moment is None else moment.replace(minute=0, second=0, microsecond=0)
