"""Store the new alarms of an evaluation, and read all stored alarms.

Every evaluation computes all alarms again from the stored turns, so these rows are the only state between
evaluations, and a consumer that was killed can resume.
"""

import hashlib
import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.estimates.turns import COMMON
from evaltap.evaluator.monitoring.model import Event, event_of
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import Json


@dataclass(frozen=True, slots=True)
class Alert:
    """An alarm that began or ended."""

    alert_id: str
    event: Event
    notify: bool
    """Whether receivers are notified; not for alarms that were already over when they were found."""
    noted_at: datetime
    """UTC, without a time zone."""

    @property
    def began(self) -> bool:
        """Whether the alarm begins with this alert."""
        return self.event.status == "firing"

    def data(self) -> dict[str, Json]:
        return {"alert_id": self.alert_id, **self.event.data()}


class Standing(NamedTuple):
    """The newest row of a stream: a whole watch, or a slice of it."""

    alert_id: str
    firing: bool
    at: datetime
    quantile: float | None
    joined: int = 0
    """The number of alarms that are part of it."""


_NO_STANDING: Final = Standing("", False, datetime.min, None)


class Key(NamedTuple):
    """Identifies a stream in the table."""

    watch: str
    slice: str
    quantile: float
    """The 95th percentile if there is none, as in rows from before there were other quantiles."""


def _standings(store: Store) -> dict[Key, Standing]:
    return {
        Key(watch, slice_, quantile or COMMON): Standing(
            alert_id, status == "firing", at, quantile, joined or 0
        )
        for watch, slice_, quantile, alert_id, status, at, joined in store.rows(_STANDINGS)
    }


def _streams(events: Iterable[Event]) -> dict[Key, list[Event]]:
    streams: dict[Key, list[Event]] = {}
    for event in events:
        if not event.part_of:
            streams.setdefault(_key(event), []).append(event)
    return streams


def note_alerts(
    store: Store, events: Iterable[Event], watches: Collection[str] = ()
) -> list[Alert]:
    """Store the new alarms of an evaluation in one transaction, and return them in chronological order.

    Alarms that are part of another one are stored with it.
    `watches` are the names of all watches: an alarm of a removed watch has ended.
    """
    known = _standings(store)
    events = list(events)
    measures = {event.watch: event.measure for event in events}
    streams = _streams(events)
    for key, one in known.items():
        is_gone = key.watch in measures or (watches and key.watch not in watches)
        if one.firing and is_gone and key not in streams:
            slice_, measure = json.loads(key.slice), measures.get(key.watch, "")
            ended = Event(
                key.watch, slice_, "ok", store.now(), quantile=one.quantile, measure=measure
            )
            streams[key] = [ended]
    found = [
        alert for key, many in streams.items() for alert in _new(key, known.get(key), many, store)
    ]
    found.sort(key=lambda one: (one.event.at or datetime.min, one.event.watch))
    _note_joined(store, known, streams)
    if found:
        cases = [(one.alert_id, case, one.noted_at) for one in found for case in one.event.cases]
        with store.transaction():
            store.append("alerts", [*map(_row, found)])
            store.append("alert_cases", cases)
    return found


def _note_joined(
    store: Store, known: Mapping[Key, Standing], streams: Mapping[Key, Sequence[Event]]
) -> None:
    """Update alarms that are on and have become larger."""
    for key, events in streams.items():
        one = known.get(key)
        if one is None or not one.firing:
            continue
        # Late turns may have moved its beginning; a later alarm is another one.
        begun = [event for event in events if event.status == "firing" and event.at is not None]
        known_begun = [event for event in begun if event.at and event.at <= one.at] or begun[:1]
        if known_begun and len(known_begun[-1].also) > one.joined:
            also = json.dumps({"also": known_begun[-1].data()["also"]})
            with store.transaction():
                store.execute(_JOINED, {"also": also, "alert_id": one.alert_id})


def as_stored(store: StoreReader, alert: Alert) -> Alert:
    """Return an alert with the alarms that have become part of it since it was noted."""
    if not alert.began:
        return alert
    for (event,) in store.rows(_STORED, {"alert_id": alert.alert_id}):
        return replace(alert, event=event_of(json.loads(event), alert.event.cases))
    return alert


_JOINED: Final = """
UPDATE alerts SET event = json_merge_patch(event, $also::JSON)
WHERE alert_id = $alert_id AND status = 'firing'
"""
_STORED: Final = """
SELECT event FROM alerts WHERE alert_id = $alert_id AND status = 'firing'
"""


def note_states(store: Store, events: Iterable[Event]) -> None:
    """Replace the states of the watches; an alarm that is over is ok, a part of another has none."""
    last = {_key(event): event for event in events}
    now = store.now()
    rows = []
    for key, event in last.items():
        if event.part_of and event.status == "firing":
            continue
        status = "ok" if event.status == "resolved" else event.status
        data = {**_data(event), "status": status, "part_of": "", "also": []}
        if status == "firing":
            data["also"] = event.data()["also"]
        rows.append((key.watch, key.slice, status, json.dumps(data), now))
    with store.transaction():
        store.execute("DELETE FROM watch_states")
        store.append("watch_states", rows)


class WatchState(NamedTuple):
    event: Event
    evaluated_at: datetime
    """UTC, without a time zone."""

    @property
    def no_turn_since(self) -> datetime | None:
        """The newest turn that counted, if all is well only because none has come for a day."""
        last = self.event.at if self.event.status == "ok" else None
        return last if last and self.evaluated_at - last > timedelta(days=1) else None


def read_states(store: StoreReader) -> list[WatchState]:
    """Return the states of the watches, alarms first."""
    return [
        WatchState(event_of(json.loads(event)), evaluated_at)
        for event, evaluated_at in store.rows(_STATES)
    ]


_STATES: Final = """
SELECT event, evaluated_at FROM watch_states
ORDER BY status <> 'firing', watch, slice, (event ->> 'quantile') DESC
"""


def read_alerts(store: StoreReader) -> list[Alert]:
    """Return all alerts in the order in which they were found."""
    return [
        Alert(alert_id, event_of(json.loads(event), cases), notify, noted_at)
        for alert_id, event, notify, noted_at, cases in store.rows(_ALERTS)
    ]


def firing(alerts: Iterable[Alert]) -> list[Alert]:
    """Return the alarms that are on, given alerts in their order."""
    last = {_key(one.event): one for one in alerts}
    return [one for one in last.values() if one.began]


def _new(
    key: Key, known: Standing | None, events: Sequence[Event], store: Store
) -> Sequence[Alert]:
    """Return the new alerts of a stream.

    An alarm that is on remains the same alarm if late turns move its beginning.
    """
    rows: list[Alert] = []
    known = known or _NO_STANDING
    on, alert_id = known.firing, known.alert_id
    turned = [one for one in events if one.status in ("firing", "resolved")]
    for event in turned:
        late = event.at is not None and event.at <= known.at
        begins = event.status == "firing"
        if late or begins == on:
            continue
        on = begins
        alert_id = _alert_id(key, event, alert_id) if begins else alert_id
        rows.append(Alert(alert_id, event, True, store.now()))
    now_on = bool(turned) and turned[-1].status == "firing"
    if now_on != on:  # late or deleted turns contradict what was stored
        last = events[-1]
        ended = replace(last, status="resolved", at=last.at or store.now())
        event = turned[-1] if now_on else ended
        alert_id = _alert_id(key, event, alert_id) if now_on else alert_id
        rows.append(Alert(alert_id, event, True, store.now()))
    # Receivers are not notified of alarms that began and ended before they were found.
    over = _ids(rows, began=True) & _ids(rows, began=False)
    return [replace(one, notify=one.alert_id not in over) for one in rows]


def _ids(alerts: Iterable[Alert], *, began: bool) -> set[str]:
    return {one.alert_id for one in alerts if one.began == began}


def _key(event: Event) -> Key:
    return Key(event.watch, json.dumps(dict(event.slice), sort_keys=True), event.quantile or COMMON)


def _alert_id(key: Key, event: Event, before: str) -> str:
    """Return an id that no other alarm of the stream has, even if one that ended began at the same time."""
    other = () if key.quantile == COMMON else (f"{key.quantile:g}",)
    at = "" if event.at is None else event.at.isoformat()
    named = "\0".join((key.watch, key.slice, *other, at, *filter(None, [before])))
    return hashlib.sha256(named.encode()).hexdigest()[:16]


def _data(event: Event) -> dict[str, Json]:
    """Return an event as it is stored: its cases are in a table of their own."""
    return {name: value for name, value in event.data().items() if name != "cases"}


def _row(alert: Alert) -> tuple[object, ...]:
    event, key = alert.event, _key(alert.event)
    at, data = event.at or alert.noted_at, json.dumps(_data(event))
    return (alert.alert_id, *key[:2], event.status, at, data, alert.notify, alert.noted_at)


_STANDINGS: Final = f"""
SELECT watch, slice, (event ->> 'quantile')::DOUBLE AS quantile, alert_id, status, turned_at,
       json_array_length(event, 'also')
FROM alerts
QUALIFY row_number() OVER (
  PARTITION BY watch, slice, coalesce(quantile, {COMMON}) ORDER BY noted_at DESC
) = 1
"""

_ALERTS: Final = """
SELECT a.alert_id, a.event, a.told, a.noted_at, if(a.status = 'firing', coalesce(c.cases, []), []) AS cases
FROM alerts a
LEFT JOIN (SELECT alert_id, list(eval_id ORDER BY noted_at, rowid) AS cases FROM alert_cases GROUP BY ALL) c
  USING (alert_id)
ORDER BY a.noted_at
"""
