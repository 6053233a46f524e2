"""Describe an event, or what raises an alarm, for a terminal."""

import shlex
from collections.abc import Iterator

from evaltap.evaluator.monitoring.measures import shown
from evaltap.evaluator.monitoring.model import (
    UNKNOWN,
    Event,
    ended_unknown,
    explanation,
    interval,
    joined_text,
    of_limit,
    subject,
)
from evaltap.evaluator.monitoring.turns import LEAST_DAYS, LEAST_SESSIONS
from evaltap.evaluator.store.database import utc_now
from evaltap.schemas.formats.monitor import Watch
from evaltap.schemas.text import counted


def event_lines(event: Event, store: str) -> Iterator[str]:
    """Yield the lines that describe an event; `store` is for the command that lists its cases."""
    at = "" if event.at is None else f", {event.at:%Y-%m-%d %H:%M} UTC"
    ends = event.silenced_until
    is_silenced = ends is not None and ends > utc_now()
    yield f"{'silenced, ' if is_silenced else ''}{event.status} {subject(event)}{at}"
    if is_silenced:
        yield f"  nobody is notified until {ends:%Y-%m-%d %H:%M} UTC"
    if state := _state_of(event):
        yield f"  {state}"
    yield from (f"  {explanation(one, event)}" for one in event.changed)
    yield from (f"  {joined_text(one)}" for one in event.also)
    if event.cases:
        yield f"  cases: {' '.join(event.cases)}"
    if event.cases_filter:
        yield f"  list them: evaltap cases {store} {shlex.quote(event.cases_filter)}"


def _state_of(event: Event) -> str:
    """Return the rates, the silence, or why there is no rate."""
    if event.of_limit:
        return of_limit(event)
    if event.rate_before is not None and event.rate_after is not None:
        since = "" if event.since is None else f" since {event.since:%Y-%m-%d}"
        before, after, most = (
            shown(one, event.unit) for one in (event.rate_before, event.rate_after, event.most or 0)
        )
        return f"{before} -> {after}{interval(event)}{since}; limit of a normal day: {most}"
    if event.since is not None:
        over = event.status == "resolved" and event.at is not None
        until = f" until {event.at:%Y-%m-%d %H:%M}" if over else ""
        return f"no turn since {event.since:%Y-%m-%d %H:%M}{until} UTC"
    return _why_no_rate(event)


def state_line(event: Event) -> str:
    rate = "" if event.rate_after is None else f" {shown(event.rate_after, event.unit)}"
    if event.most is not None:
        rate += f", limit {shown(event.most, event.unit)}"
    progress = f" {event.progress}" if event.progress else ""
    more = "".join(f", also {one.subject}" for one in event.also)
    return f"{event.status}{progress}: {subject(event)}{rate}{more}"


def fixed_limit(watch: Watch) -> str:
    """Describe the alarm condition of a watch without a baseline."""
    if not watch.has_limit:
        return f"alarm after {counted(watch.minutes, 'minute')} without a turn"
    limits = [
        f"{word} {limit:.3g}"
        for word, limit in (("below", watch.below), ("above", watch.above))
        if limit is not None
    ]
    return (
        f"a fixed limit: {watch.signal} {' or '.join(limits)} over {counted(watch.hours, 'hour')}"
    )


def _why_no_rate(event: Event) -> str:
    """Explain why a watch has no rate; empty if it needs no explanation."""
    if ended_unknown(event):
        return UNKNOWN
    if event.status == "no_data":
        return "no stored turn counts: none matches its `where`, or its metric has no scores here"
    if event.status == "waiting":
        return "waits until a session has ended: it had no turn for `quietMinutes`"
    if event.status == "learning" and event.progress:
        least = f"{LEAST_DAYS} days and {LEAST_SESSIONS} sessions"
        learns = f"learns until `baselineDays` days had traffic, with at least {least}"
        # A fixed limit learns nothing: it waits for sessions.
        return f"{event.progress}; {learns}" if " of " in event.progress else event.progress
    return ""
