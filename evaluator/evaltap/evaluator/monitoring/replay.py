"""Runs watches over what is stored: the alarms that they would have raised, always the same ones."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import groupby, pairwise
from typing import Final

from evaltap.evaluator.estimates.scope import Scope, Signal
from evaltap.evaluator.estimates.slices import SLICES
from evaltap.evaluator.estimates.turns import choose_turns
from evaltap.evaluator.monitoring.alarms import Alarms
from evaltap.evaluator.monitoring.changed import Candidate, changed_slices, explaining
from evaltap.evaluator.monitoring.evidence import filter_of
from evaltap.evaluator.monitoring.limits import limit_events
from evaltap.evaluator.monitoring.model import Event, Status
from evaltap.evaluator.monitoring.rules import SILENCE, chance_of, where_of
from evaltap.evaluator.monitoring.starts import start_of
from evaltap.evaluator.monitoring.turns import (
    OTHER,
    WatchedSession,
    WatchedTurn,
    by_value,
    read_turns,
    sessions_of,
)
from evaltap.evaluator.stats.detector import Usual, longest_session, usual
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.formats.monitor import MonitorFile, Watch

QUIET: Final = timedelta(minutes=30)
"""A session without a turn for so long counts as ended."""
LEAST_DAYS: Final = 7
LEAST_SESSIONS: Final = 50
EXAMPLES: Final = 10


def replay(store: StoreReader, rules: MonitorFile, *, now: datetime | None = None) -> list[Event]:
    """Return the alarms of all watches in the order of time, and the state of the others.

    With `now` (aware), traffic goes on: sessions that may not have ended do not count yet, and a silence
    lasts that has no turn after it.  Raises InputError for a slice that is not there.
    """
    until = None if now is None else now.astimezone(UTC).replace(tzinfo=None)
    found: list[Event] = []
    for watch in rules.watch:
        if watch.signal == SILENCE:
            found += _silences(store, watch, until)
        elif watch.has_limit:
            found += _limited(store, watch, until)
        else:
            found += _watched(store, watch, chance_of(watch, rules), until)
    return sorted(found, key=lambda event: (event.at or datetime.min, event.watch))


def _silences(store: StoreReader, watch: Watch, until: datetime | None) -> Iterator[Event]:
    """Yield an alarm for each gap between two turns that is too long, and for one up to `until`."""
    scope = Scope(where=where_of(watch, {}), since=start_of(store, watch.name))
    choose_turns(store, scope, [], Signal("TRUE", "TRUE"))
    rows = store.rows(
        "SELECT started_at FROM estimate_turns WHERE started_at IS NOT NULL ORDER BY started_at"
    )
    times: list[datetime] = [at for (at,) in rows]
    if not times:
        yield Event(watch.name, {}, "no_data", None)
        return
    longest, silent = timedelta(minutes=watch.minutes), False
    for before, after in pairwise(times):
        if after - before > longest:
            silent = True
            yield Event(watch.name, {}, "firing", before + longest, before)
            yield Event(watch.name, {}, "resolved", after, before)
    if until is not None and until - times[-1] > longest:
        yield Event(watch.name, {}, "firing", times[-1] + longest, times[-1])
    elif not silent:
        yield Event(watch.name, {}, "ok", times[-1])


def _limited(store: StoreReader, watch: Watch, until: datetime | None) -> Iterator[Event]:
    turns = read_turns(store, watch)
    if not turns:
        yield Event(watch.name, {}, "no_data", None)
        return
    streams: list[tuple[Mapping[str, str], Sequence[WatchedTurn]]] = [({}, turns)]
    for by in watch.by:
        sliced = by_value(read_turns(store, watch, by), date.max)
        streams += [({by: value}, found) for value, found in sorted(sliced.items())]
    for slice_, found in streams:
        if sessions := [one for one in sessions_of(found) if _has_ended(one, until)]:
            yield from limit_events(watch, slice_, sessions, until)


def _watched(
    store: StoreReader, watch: Watch, chance: float, until: datetime | None
) -> Iterator[Event]:
    turns = read_turns(store, watch)
    if not turns:
        yield Event(watch.name, {}, "no_data", None)
        return
    begins = turns[0].started_at.date() + timedelta(days=watch.baseline_days)
    streams: list[tuple[Mapping[str, str], Sequence[WatchedTurn]]] = [({}, turns)]
    for by in watch.by:
        sliced = by_value(read_turns(store, watch, by), begins)
        streams += [({by: value}, found) for value, found in sorted(sliced.items())]
    for slice_, found in streams:
        # The chance of a false alarm is shared by all of them.
        stream = _Stream(store, watch, slice_, chance / len(streams))
        sessions = [one for one in sessions_of(found) if _has_ended(one, until)]
        if sessions:
            yield from stream.events(sessions, begins)
        else:
            yield Event(watch.name, slice_, "learning", None)


@dataclass(frozen=True, slots=True)
class _Stream:
    """The whole traffic of a watch, or a slice of it."""

    store: StoreReader
    watch: Watch
    slice: Mapping[str, str]
    chance: float

    def events(self, sessions: Sequence[WatchedSession], begins: date) -> Iterator[Event]:
        """Yield when alarms begin and end; its state when there was none."""
        before = _baseline(sessions, begins)
        after = sessions[len(before) :]
        last = sessions[-1].ended
        if not after:
            yield Event(self.watch.name, self.slice, "learning", last)
            return
        begins = after[0].began.date()
        longest = longest_session([len(one.turns) for one in before])
        days = groupby(before, key=lambda one: one.began.date())
        known = usual(
            [[one.bad(longest) for one in day] for _, day in days], self.watch.smallest_change
        )
        heaviest = max(turn.weight for one in before for turn in one.turns)
        alarms = Alarms(known, heaviest * longest, self.chance)
        raised = False
        for session in after:
            now = session.bad(longest)
            if alarms.firing:
                share = alarms.recovered(now)
                if share is not None:
                    yield self._event("resolved", session.ended, known, share)
            elif alarms.observe(session.began.date(), now):
                raised = True
                event = self._event("firing", session.ended, known, alarms.share, alarms)
                yield self._explained(event, begins)
        if not raised:
            yield self._event("ok", last, known, alarms.share, alarms)

    def _event(
        self,
        status: Status,
        at: datetime,
        known: Usual,
        share: float | None,
        alarms: Alarms | None = None,
    ) -> Event:
        good = self.watch.signal == "pass_rate"
        before, after, most = (
            1 - one if good and one is not None else one for one in (known.share, share, known.most)
        )
        return Event(
            self.watch.name,
            self.slice,
            status,
            at,
            datetime.combine(alarms.since, time()) if alarms and status == "firing" else None,
            before,
            after,
            most,
            None if alarms is None else alarms.evidence,
        )

    def _explained(self, event: Event, begins: date) -> Event:
        """Return an alarm with the slices that changed, and cases to look at."""
        if OTHER in self.slice.values():
            return event  # what is rare has no condition of its own
        good = self.watch.signal == "pass_rate"
        candidates: list[Candidate] = []
        for by in SLICES:
            turns = read_turns(self.store, self.watch, by, self.slice)
            before = [turn for turn in turns if turn.started_at.date() < begins]
            after = [turn for turn in turns if _during(turn, event)]
            candidates += changed_slices(before, after, by, good=good)
        changed = explaining(candidates)
        within = dict(self.slice)
        if changed:
            within[changed[0].by] = changed[0].value
        turns = read_turns(self.store, self.watch, "", within)
        cases = dict.fromkeys(turn.eval_id for turn in turns if turn.bad and _during(turn, event))
        found = filter_of(self.watch, self.slice, changed, event.since, event.at)
        return replace(event, changed=changed, cases=tuple(cases)[:EXAMPLES], cases_filter=found)


def _has_ended(session: WatchedSession, until: datetime | None) -> bool:
    """Tell whether a session goes on no more; nobody waits for one whose clock is ahead."""
    return until is None or not until - QUIET < session.ended <= until


def _during(turn: WatchedTurn, event: Event) -> bool:
    return bool(event.since and event.at and event.since <= turn.started_at <= event.at)


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
