"""Delivery: the accounts of producers, dead letters, alarms, and why a case has no score."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

import orjson

from evaltap.evaluator.ingest.landing.dead_letters import letters
from evaltap.evaluator.ingest.landing.seq_ranges import Ranges, size
from evaltap.evaluator.monitoring.history import WatchState, read_states
from evaltap.evaluator.page.rendering import measured
from evaltap.evaluator.page.request import PageAnswer, PageRequest, link, list_of
from evaltap.evaluator.pipeline.maintenance.completeness import landed_accounts
from evaltap.evaluator.pipeline.maintenance.why import Answer, why
from evaltap.evaluator.reports.html import charts
from evaltap.evaluator.store.queries import StoreReader

SHOWN_LETTERS: Final = 50
EXAMPLES: Final = 10
_AROUND: Final = timedelta(hours=6)
_OLDEST: Final = """
SELECT min(landed_at) FROM cases ANTI JOIN scores USING (app_name, eval_set_id, eval_id)
"""
_ALERTS: Final = """
SELECT alert_id, watch, slice, status, turned_at, event, coalesce(eval_ids, []) AS eval_ids,
       max(event->'rates') FILTER (status = 'firing') OVER (PARTITION BY alert_id) AS rates
FROM alerts
LEFT JOIN (
  SELECT alert_id, list(eval_id ORDER BY noted_at, rowid) AS eval_ids FROM alert_cases GROUP BY alert_id
) USING (alert_id)
QUALIFY row_number() OVER (PARTITION BY alert_id ORDER BY noted_at DESC) = 1
ORDER BY turned_at DESC LIMIT 100
"""


@dataclass(frozen=True, slots=True)
class Producer:
    producer_id: str
    recorded: int
    landed: int
    dropped: Mapping[str, int]
    dead: int
    erased: int
    gaps: Ranges
    missing: int
    closed: bool


@dataclass(frozen=True, slots=True)
class Letter:
    """A record that could not be landed."""

    number: int
    place: str
    reason: str
    detail: str
    parked: bool
    landed_at: datetime


@dataclass(frozen=True, slots=True)
class DeliveryPage:
    producers: tuple[Producer, ...]
    letters: tuple[Letter, ...]
    oldest_unscored: datetime | None
    why: Answer | None
    case: str


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read the accounts, and why the requested case `id` has no score."""
    producers = tuple(
        Producer(
            producer_id=one.producer_id,
            recorded=one.recorded,
            landed=one.landed,
            dropped=one.dropped,
            dead=size(one.dead),
            erased=size(one.erased),
            gaps=one.lost,
            missing=size(one.lost),
            closed=one.closed,
        )
        for one in landed_accounts(reader)
    )
    found = tuple(
        Letter(
            one.number,
            f"{one.topic} {one.partition} @ {one.offset}",
            one.reason,
            one.detail,
            one.parked,
            one.landed_at,
        )
        for one in letters(reader, limit=SHOWN_LETTERS)
    )
    ((oldest,),) = reader.rows(_OLDEST)
    case = request.exact("id")
    answer = why(reader, case) if case else None
    data = DeliveryPage(producers, found, oldest, answer, case)
    return PageAnswer("delivery.html.j2", "Delivery", data)


class Example(NamedTuple):
    """A case of an alarm, with its link and the user's first message."""

    eval_id: str
    href: str
    opening: str


@dataclass(frozen=True, slots=True)
class Alert:
    """An alarm in its current state."""

    alert_id: str
    watch: str
    slice: Mapping[str, str]
    status: str
    turned_at: datetime
    event: Mapping[str, Any]
    href: str
    """The list of its cases."""
    examples: tuple[Example, ...]
    chart: charts.Chart | None
    """The rate until the alarm, with its limit; None if it was not kept."""
    overview_href: str
    """The overview of the surrounding time."""
    silenced: bool
    """Whether notifications of its watch are currently silenced."""


@dataclass(frozen=True, slots=True)
class AlertsPage:
    alarms: tuple[Alert, ...]
    states: tuple[WatchState, ...]
    """The watches, as last evaluated by a consumer."""


_OPENINGS: Final = """
SELECT eval_id, any_value(opening) FROM case_index WHERE eval_id IN $ids GROUP BY eval_id
"""


def _overview(turned_at: datetime, since: str | None) -> str:
    """Return the overview from before a change until an hour after its alarm."""
    began = datetime.fromisoformat(since).replace(tzinfo=None) if since else turned_at
    start, end = min(began, turned_at) - _AROUND, turned_at + timedelta(hours=1)
    return link("/", **{"from": f"{start:%Y-%m-%dT%H:%M}", "to": f"{end:%Y-%m-%dT%H:%M}"})


def _chart(rates: Sequence[Mapping[str, Any]], event: Mapping[str, Any]) -> charts.Chart | None:
    if len(rates) < 2:
        return None
    unit, most = event.get("unit", ""), event.get("most")
    points = [
        charts.Point(datetime.fromisoformat(one["at"]).replace(tzinfo=None), one["value"])
        for one in rates
    ]
    known: list[float] = [one.value for one in points if one.value is not None]
    known += [] if most is None else [most]
    limit = "" if most is None else f"dashed: limit {measured(most, unit)}"
    return charts.lines(
        "Until the alarm",
        [("rate", points)],
        say="; ".join(filter(None, ["the rate until the alarm", limit])),
        value=limit,
        low=0.0,
        high=1.1 * max(known, default=1.0),
        form=lambda value: measured(value, unit),
        dashed=most,
    )


def view_alerts(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read the alarms, newest first, and the states of the watches."""
    found = []
    alarms = reader.records(_ALERTS)
    ids = sorted({one for row in alarms for one in row["eval_ids"][:EXAMPLES]})
    openings: dict[str, str | None] = dict(reader.rows(_OPENINGS, {"ids": ids}))
    for row in alarms:
        event = orjson.loads(row["event"])
        silenced_until = event.get("silenced_until")
        q = event.get("cases_filter") or ""
        found.append(
            Alert(
                alert_id=row["alert_id"],
                watch=row["watch"],
                slice=orjson.loads(row["slice"]),
                status=row["status"],
                turned_at=row["turned_at"],
                event=event,
                href=link("/cases", q=q) if q else "",
                examples=tuple(
                    Example(one, list_of(one), openings.get(one) or "")
                    for one in row["eval_ids"][:EXAMPLES]
                ),
                chart=_chart(orjson.loads(row["rates"] or "[]"), event),
                overview_href=_overview(row["turned_at"], event.get("since")),
                silenced=silenced_until is not None
                and datetime.fromisoformat(silenced_until) > datetime.now(UTC),
            )
        )
    return PageAnswer(
        "alerts.html.j2", "Alerts", AlertsPage(tuple(found), tuple(read_states(reader)))
    )
