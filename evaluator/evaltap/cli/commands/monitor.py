"""`evaltap monitor`: check and replay watches on live traffic, and list their alarms."""

import json
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from rich.text import Text

from evaltap.cli.options.inspect import (
    MonitorAlertsOptions,
    MonitorCheckOptions,
    MonitorRebaseOptions,
    MonitorReplayOptions,
)
from evaltap.cli.stores import open_store, open_stores
from evaltap.evaluator.monitoring.history import firing, read_alerts
from evaltap.evaluator.monitoring.learned import LEAST_DAYS, LEAST_SESSIONS
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.replay import described, replay
from evaltap.evaluator.monitoring.rules import SILENCE, chance_of, read_rules
from evaltap.evaluator.monitoring.starts import alarmed_watches, rebase
from evaltap.evaluator.monitoring.wording import (
    UNKNOWN,
    ended_unknown,
    explanation,
    interval,
    of_limit,
    subject,
)
from evaltap.evaluator.pipeline.batch.pricing import Price, price_rules
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.database import utc_now
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.model import Json
from evaltap.schemas.formats.monitor import MonitorFile, Watch
from evaltap.schemas.text import counted, did_you_mean, utc_text

MonitorOptions = (
    MonitorCheckOptions | MonitorReplayOptions | MonitorAlertsOptions | MonitorRebaseOptions
)


def run(options: MonitorOptions) -> int:
    """Check the rules, print alarms, or give a watch a new baseline; return the exit code."""
    if isinstance(options, MonitorCheckOptions):
        return _check(options)
    if isinstance(options, MonitorReplayOptions):
        return _replay(options)
    return _alerts(options) if isinstance(options, MonitorAlertsOptions) else _rebase(options)


def _check(options: MonitorCheckOptions) -> int:
    given = [*options.files, *([options.rules] if options.rules else [])]
    files = [path for path in given if path.suffix != ".duckdb"]
    stores = [path for path in given if path.suffix == ".duckdb"]
    if len(files) != 1 or len(stores) > 1:
        raise InputError(
            "check: expected one file of rules and at most one DuckDB file: `evaltap monitor check"
            " monitor.json X.duckdb`"
        )
    rules = read_rules(files[0])
    watches: list[dict[str, Json]] = [
        {
            "name": one.name,
            "false_alarms_per_month": None
            if one.signal == SILENCE or one.has_limit
            else chance_of(one, rules),
        }
        for one in rules.watch
    ]
    usual = options.usual_store
    prices = _prices(rules, stores or ([usual] if usual and usual.is_file() else []))
    if options.json:
        score = None if prices is None else [one.data() for one in prices]
        print(json.dumps({"watch": watches, "score": score}, ensure_ascii=False))
        return 0
    number = "1 watch" if len(rules.watch) == 1 else f"{len(rules.watch):,} watches"
    print(f"valid: {number}, {counted(len(rules.score), 'score rule')}")
    for watch, one in zip(rules.watch, watches, strict=True):
        chance = one["false_alarms_per_month"]
        condition = _fixed(watch) if chance is None else f"{chance:.3g} false alarms a month"
        print(f"  {watch.name}: {condition}")
    for line in _price_lines(rules, prices):
        print(line)
    return 0


def _fixed(watch: Watch) -> str:
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


def _prices(rules: MonitorFile, stores: Sequence[Path]) -> list[Price] | None:
    """Return what the rules would have scored and spent per day; None without a store."""
    if not rules.score or not stores:
        return None if rules.score else []
    with open_stores(stores) as store:
        return price_rules(store, rules)


def _price_lines(rules: MonitorFile, prices: Sequence[Price] | None) -> Iterator[str]:
    if prices is None:
        yield "cost of the score rules: add a DuckDB file to estimate it"
        return
    if rules.score and not prices:
        yield "cost of the score rules: unknown, no turn has landed"
    for one in prices:
        calls = "judge calls unknown" if one.calls is None else f"{one.calls:,.1f} judge calls"
        usd = "cost unknown" if one.usd is None else f"{one.usd:,.4f} USD"
        yield f"  {one.rule}: per day {one.scored:,.1f} of {one.turns:,.1f} turns, {calls}, {usd}"
        if one.over_budget:
            yield "    exceeds its budget, so the sampling rate is lowered every hour"


def _replay(options: MonitorReplayOptions) -> int:
    rules = read_rules(options.rules)
    with open_stores(options.db) as store:
        events = replay(store, rules)
    if options.json:
        print(json.dumps([event.data() for event in events], ensure_ascii=False))
    else:
        _print(events, options.db)
    return _code(events)


def _alerts(options: MonitorAlertsOptions) -> int:
    with open_stores(options.db) as store:
        alerts = read_alerts(store)
    if options.rules is not None:
        events = described([one.event for one in alerts], read_rules(options.rules))
        alerts = [replace(one, event=event) for one, event in zip(alerts, events, strict=True)]
    if options.json:
        print(json.dumps([one.data() for one in alerts], ensure_ascii=False))
    else:
        _print([one.event for one in alerts], options.db)
        if not alerts:
            print("no alarms so far")
    return 1 if firing(alerts) else 0


def _rebase(options: MonitorRebaseOptions) -> int:
    watch, now = options.watch, datetime.now(UTC)
    with open_store(options.db, create=False) as store:
        rebase(store, watch, now)
        known = alarmed_watches(store)
    if options.json:
        print(json.dumps({"watch": watch, "learns_from": utc_text(now, "seconds")}))
    else:
        print(f"{watch}: learns a new baseline from turns after {now:%Y-%m-%d %H:%M} UTC")
        if watch not in known:
            hint = did_you_mean(watch, known)
            print(f"note: no alarm of a watch {watch!r} is stored; {hint or 'check the name'}")
    return 0


def _code(events: list[Event]) -> int:
    last = {one.stream: one.status for one in events}
    if "firing" in last.values():
        return 1
    return 3 if set(last.values()) <= {"learning", "no_data"} else 0


def _print(events: list[Event], paths: Sequence[Path]) -> None:
    out = console()
    store = shlex.quote(str(paths[0])) if len(paths) == 1 else "X.duckdb"
    for event in events:
        for line in _lines(event, store):
            style = "red" if event.status == "firing" else ""
            out.print(Text(visible(line), style=style), soft_wrap=True)


def _lines(event: Event, store: str) -> Iterator[str]:
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
    elif state := _state(event):
        yield f"  {state}"
    yield from (f"  {explanation(one, event)}" for one in event.changed)
    if event.cases:
        yield f"  cases: {' '.join(event.cases)}"
    if event.cases_filter:
        yield f"  list them: evaltap cases {store} {shlex.quote(event.cases_filter)}"


def _state(event: Event) -> str:
    """Explain why a watch has no rate; empty if it needs no explanation."""
    if ended_unknown(event):
        return UNKNOWN
    if event.status == "no_data":
        return "no stored turn counts: none matches its `where`, or its metric has no scores here"
    if event.status == "learning":
        least = f"{LEAST_DAYS} days and {LEAST_SESSIONS} sessions"
        return f"learns until the traffic spans its `baselineDays`, with at least {least}"
    return ""
