"""One cause, one alarm: an alarm about the same bad turns as one that is on becomes part of it.

Two alarms have one cause if the earlier one is on when the later one is raised, the later one's change began
before that, and of the bad turns that both saw in the time that they have in common, at least 80 % of the one
with fewer are also the other's.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from operator import attrgetter
from typing import Final

from evaltap.evaluator.monitoring.model import BadSpan, Event, Joined, subject
from evaltap.evaluator.monitoring.turns import WatchedTurn

SAME: Final = 0.8
_FEWEST: Final = 2
"""One bad turn in common is no sign of one cause."""
_MOST: Final = 1_000
"""The number of bad turns, the newest, by which an alarm is compared with others."""


def bad_span(begins: datetime, turns: Iterable[WatchedTurn]) -> BadSpan:
    """Return the bad turns of an alarm whose change began at a time."""
    newest = sorted(turns, key=attrgetter("started_at"))[-_MOST:]
    if len(newest) == _MOST:
        begins = max(begins, newest[0].started_at)
    return BadSpan(begins, {(one.session, one.turn): one.started_at for one in newest})


@dataclass(frozen=True, slots=True)
class _Alarm:
    """An alarm of a stream, from its beginning to its end."""

    fires: Event
    ends: Event | None

    def is_on(self, at: datetime) -> bool:
        return self.ends is None or (self.ends.at is not None and self.ends.at >= at)


def _incidents(events: Sequence[Event]) -> list[list[_Alarm]]:
    """Return the alarms by incident: those of one cause, each of which began while another was on."""
    incidents: list[list[_Alarm]] = []
    for alarm in sorted(_alarms(events), key=lambda one: _began(one.fires)):
        for one in incidents:
            if any(other.is_on(_began(alarm.fires)) for other in one) and any(
                _same_cause(other.fires, alarm.fires) for other in one
            ):
                one.append(alarm)
                break
        else:
            incidents.append([alarm])
    return incidents


def joined(events: Sequence[Event], leading: Collection[tuple[object, ...]] = ()) -> list[Event]:
    """Return events in which each alarm that is part of another one names it in `part_of`.

    An alarm lists those that are part of it, and ends with the last of them; until then its own watch is not
    ok.  The first one leads, but alarms of the streams `leading`, which receivers know, lead before others.
    """
    changed: dict[int, Event | None] = {}
    for alarms in _incidents(events):
        if len(alarms) > 1:
            changed |= _as_one(alarms, leading)
    found = [new for event in events if (new := changed.get(id(event), event)) is not None]
    on = {one.fires.stream for one in _alarms(found) if one.ends is None}
    return [event for event in found if event.status != "ok" or event.stream not in on]


def _alarms(events: Sequence[Event]) -> Iterable[_Alarm]:
    on: dict[tuple[object, ...], Event] = {}
    for event in events:
        if event.status == "firing" and event.at is not None:
            on[event.stream] = event
        elif event.status == "resolved" and event.stream in on:
            yield _Alarm(on.pop(event.stream), event)
    yield from (_Alarm(event, None) for event in on.values())


def _began(event: Event) -> datetime:
    assert event.at is not None
    return event.at


def _same_cause(one: Event, other: Event) -> bool:
    if one.stream == other.stream:
        return True
    if one.bad is None or other.bad is None:
        return False
    begins, ends = max(one.bad.begins, other.bad.begins), min(_began(one), _began(other))
    first, second = (
        {turn for turn, at in event.bad.turns.items() if begins <= at <= ends}
        for event in (one, other)
        if event.bad is not None
    )
    fewer = min(len(first), len(second))
    return fewer >= _FEWEST and len(first & second) >= SAME * fewer


def _as_one(
    alarms: Sequence[_Alarm], leading: Collection[tuple[object, ...]]
) -> dict[int, Event | None]:
    """Return what becomes of the events of alarms that have one cause; None: it is left out."""
    last = _last_end(alarms)
    lead = min(
        alarms,
        key=lambda one: (
            one.fires.stream not in leading,
            _began(one.fires),
            -(one.fires.evidence or 0.0),
            -len(one.fires.slice),
        ),
    )
    others = [one for one in alarms if one.fires.stream != lead.fires.stream]
    others.sort(key=lambda one: (-len(one.fires.slice), -_size(one.fires)))
    name = subject(lead.fires)
    found: dict[int, Event | None] = {}
    for alarm in alarms:
        own = alarm.fires.stream == lead.fires.stream
        found[id(alarm.fires)] = None if own else replace(alarm.fires, part_of=name)
        if alarm.ends is not None:
            found[id(alarm.ends)] = None if own else replace(alarm.ends, part_of=name)
    found[id(lead.fires)] = replace(lead.fires, also=_parts(one.fires for one in others))
    if last is not None and lead.ends is not None:
        also = _parts(one.ends for one in others)
        found[id(lead.ends)] = replace(lead.ends, at=last.at, also=also)
    return found


def _last_end(alarms: Sequence[_Alarm]) -> Event | None:
    """Return what ends the last of the alarms; None if not all have ended."""
    ends = [one.ends for one in alarms if one.ends is not None]
    return max(ends, key=lambda one: one.at or datetime.min) if len(ends) == len(alarms) else None


def _parts(events: Iterable[Event | None]) -> tuple[Joined, ...]:
    """Return what another alarm says of these, with their rates of now."""
    parts = (
        Joined(subject(one), one.at, one.rate_before, one.rate_after, one.unit)
        for one in events
        if one is not None
    )
    return tuple(dict.fromkeys(parts))


def _size(event: Event) -> float:
    """Return by what factor it got worse, for sorting."""
    before, after = event.rate_before or 0.0, event.rate_after or 0.0
    return abs(after - before) / max(before, after, 1e-9)
