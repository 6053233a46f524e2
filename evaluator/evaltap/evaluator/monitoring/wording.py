"""Describe an alarm in a sentence, for a log, a terminal or a message, without any content of traces."""

import shlex
from collections.abc import Iterator
from typing import Final

from evaltap.evaluator.analysis.estimates.quantiles import MEDIAN
from evaltap.evaluator.monitoring.learned import LEAST_DAYS, LEAST_SESSIONS
from evaltap.evaluator.monitoring.model import Changed, Event
from evaltap.evaluator.store.database import utc_now
from evaltap.schemas.formats.monitor import Watch
from evaltap.schemas.text import counted

UNKNOWN: Final = "no longer known, as the watch was changed or has no baseline now"
"""The state of an alarm that ended without a rate to compare with."""


def subject(event: Event) -> str:
    """Return the subject of an event: the watch, what it measures, its slice and its quantile."""
    measure = event.measure if event.measure != event.watch else ""
    above = "turns above the median" if event.quantile == MEDIAN else ""
    remarks = ", ".join(filter(None, (measure, above)))
    slice_ = "".join(f" {by}={value}" for by, value in event.slice.items())
    return f"{event.watch}{f' ({remarks})' if remarks else ''}{slice_}"


def summary(event: Event) -> str:
    """Return the state of a watch as a sentence."""
    name = subject(event)
    if event.of_limit:
        return f"{name} is {'back ' if event.status == 'resolved' else ''}at {of_limit(event)}"
    if event.rate_before is None or event.rate_after is None:
        return f"{name}: {UNKNOWN if ended_unknown(event) else _of_silence(event)}"
    before, after = event.rate_before, event.rate_after
    if event.status == "resolved":
        return f"{name} is back at {after:.1%} (usual: {before:.1%})"
    verb = "fell" if after < before else "rose"
    since = "" if event.since is None else f" since {event.since:%Y-%m-%d}"
    said = f"{name} {verb} from {before:.1%} to {after:.1%}{interval(event)}{since}"
    if event.most is not None:
        said += f" (limit of a normal day: {event.most:.1%})"
    return "; ".join([said, *(explanation(one, event) for one in event.changed[:1])])


def ended_unknown(event: Event) -> bool:
    """Return whether an alarm ended without a rate: its watch was changed, removed or rebased."""
    return event.status == "resolved" and event.rate_after is None and event.since is None


def interval(event: Event) -> str:
    """Return the interval and evidence of the current rate, as a suffix; empty if there is none."""
    if event.low is None or event.high is None:
        return ""
    behind = ""
    if event.turns is not None and event.sessions is not None:
        behind = f", {counted(event.turns, 'turn')} in {counted(event.sessions, 'session')}"
    return f" (95 %: {event.low:.1%} to {event.high:.1%}{behind})"


def of_limit(event: Event) -> str:
    """Return the rate of a window with its fixed limit."""
    return f"{event.rate_after or 0.0:.1%}{interval(event)}, limit {event.most or 0.0:.1%}"


def explanation(one: Changed, event: Event) -> str:
    """Return how a slice explains an alarm."""
    if one.kind == "mix":
        shares = f"{one.share_before:.1%} -> {one.share_after:.1%} of the turns"
        return f"{one.by} {one.value}: {shares}; the mix of traffic changed, not the agent"
    rates = f"{one.rate_before:.1%} -> {one.rate_after:.1%}"
    before, after = event.rate_before or 0.0, event.rate_after or 0.0
    if before == after:
        return f"{one.by} {one.value}: {rates}"
    # If other slices improved, one slice may explain more than the whole change.
    part = min(1.0, one.effect / abs(after - before))
    return f"{one.by} {one.value}: {rates}, explains {part:.0%} of the {'drop' if after < before else 'rise'}"


def _of_silence(event: Event) -> str:
    if event.status == "firing":
        since = "" if event.since is None else f" since {event.since:%Y-%m-%d %H:%M} UTC"
        return f"no turn{since}"
    return "turns again" if event.status == "resolved" else event.status


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


def event_lines(event: Event, store: str) -> Iterator[str]:
    """Yield the lines that describe an event; `store` is for the command that lists its cases."""
    at = "" if event.at is None else f", {event.at:%Y-%m-%d %H:%M} UTC"
    ends = event.silenced_until
    is_silenced = ends is not None and ends > utc_now()
    yield f"{'silenced, ' if is_silenced else ''}{event.status} {subject(event)}{at}"
    if is_silenced:
        yield f"  nobody is notified until {ends:%Y-%m-%d %H:%M} UTC"
    if event.of_limit:
        yield f"  {of_limit(event)}"
    elif event.rate_before is not None and event.rate_after is not None:
        since = "" if event.since is None else f" since {event.since:%Y-%m-%d}"
        yield (
            f"  {event.rate_before:.1%} -> {event.rate_after:.1%}{interval(event)}{since}; limit of a"
            f" normal day: {event.most or 0:.1%}"
        )
    elif event.since is not None:
        over = event.status == "resolved" and event.at is not None
        until = f" until {event.at:%Y-%m-%d %H:%M}" if over else ""
        yield f"  no turn since {event.since:%Y-%m-%d %H:%M}{until} UTC"
    elif state := _why_no_rate(event):
        yield f"  {state}"
    yield from (f"  {explanation(one, event)}" for one in event.changed)
    if event.cases:
        yield f"  cases: {' '.join(event.cases)}"
    if event.cases_filter:
        yield f"  list them: evaltap cases {store} {shlex.quote(event.cases_filter)}"


def _why_no_rate(event: Event) -> str:
    """Explain why a watch has no rate; empty if it needs no explanation."""
    if ended_unknown(event):
        return UNKNOWN
    if event.status == "no_data":
        return "no stored turn counts: none matches its `where`, or its metric has no scores here"
    if event.status == "learning":
        least = f"{LEAST_DAYS} days and {LEAST_SESSIONS} sessions"
        return f"learns until the traffic spans its `baselineDays`, with at least {least}"
    return ""
