"""A fixed limit on a share: an alarm when the 95 % interval of a window is beyond it, not the point alone.

The window ends with each full hour that had a session; what a window holds is a count of alike sessions, so a
long history costs no more than its hours.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Final

from evaltap.evaluator.monitoring.evidence import filter_of
from evaltap.evaluator.monitoring.model import Event, Status
from evaltap.evaluator.monitoring.turns import WatchedSession
from evaltap.evaluator.stats.estimate import Estimate, estimate
from evaltap.evaluator.stats.sample import Cell, Profile
from evaltap.schemas.formats.monitor import Watch

EXAMPLES: Final = 10
_HOUR: Final = timedelta(hours=1)
_FEWEST: Final = 10
"""Sessions in effect; fewer decide nothing."""
_Cells = tuple[Cell, ...]


def limit_events(
    watch: Watch,
    slice_: Mapping[str, str],
    sessions: Sequence[WatchedSession],
    until: datetime | None,
) -> Iterator[Event]:
    """Yield when alarms begin and end, and the state where there was none.

    With `until`, the hour that is not over yet says nothing.
    """
    good = watch.signal == "pass_rate"
    hours: dict[datetime, Counter[_Cells]] = {}
    for session in sessions:
        hour = session.began.replace(minute=0, second=0, microsecond=0)
        hours.setdefault(hour, Counter())[_cells_of(session, good=good)] += 1
    firing, raised, seen = False, False, None
    for hour in hours:
        ends = hour + _HOUR
        if until is not None and ends > until:
            break
        begins = ends - timedelta(hours=watch.hours)
        found = _estimate(hours, begins, ends)
        if found is None:
            continue
        seen = ends, found
        if not firing and _beyond(watch, found.process.low, found.process.high):
            firing = raised = True
            event = _event(watch, slice_, "firing", ends, found, max(begins, sessions[0].began))
            yield _with_cases(event, watch, sessions, begins, ends)
        elif firing and not _beyond(watch, found.rate, found.rate):
            firing = False
            yield _event(watch, slice_, "resolved", ends, found)
    if seen is None:
        yield Event(watch.name, slice_, "learning", sessions[-1].ended)
    elif not raised:
        yield _event(watch, slice_, "ok", *seen)


def _cells_of(session: WatchedSession, *, good: bool) -> _Cells:
    """Return a session as estimators see it; of a pass rate, what passed counts."""
    counts = Counter((1 / turn.weight, turn.bad != good) for turn in session.turns)
    found = []
    for chance in sorted({chance for chance, _ in counts}):
        has = counts[chance, True]
        found.append(Cell(chance, has + counts[chance, False], has, has))
    return tuple(found)


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
    limits = [one for one in (watch.below, watch.above) if one is not None]
    passed = watch.below if watch.below is not None and found.rate < watch.below else limits[-1]
    low, high = found.process
    return Event(
        watch.name, slice_, status, at, since, None, found.rate, passed, low=low, high=high
    )  # fmt: skip


def _with_cases(
    event: Event,
    watch: Watch,
    sessions: Sequence[WatchedSession],
    begins: datetime,
    ends: datetime,
) -> Event:
    cases = dict.fromkeys(
        turn.eval_id
        for session in sessions
        if begins <= session.began < ends
        for turn in session.turns
        if turn.bad
    )
    within = filter_of(watch, event.slice, (), event.since, ends)
    return replace(event, cases=tuple(cases)[:EXAMPLES], cases_filter=within)
