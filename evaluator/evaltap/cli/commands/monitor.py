"""`evaltap monitor`: check and replay watches on live traffic, and list their alarms."""

import shlex
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from rich.text import Text

from evaltap.cli.messages import print_json
from evaltap.cli.options.inspect import (
    MonitorAlertsOptions,
    MonitorCheckOptions,
    MonitorRebaseOptions,
    MonitorReplayOptions,
    MonitorStatusOptions,
)
from evaltap.cli.stores import open_stores
from evaltap.evaluator.monitoring.event_text import event_lines, fixed_limit, state_line
from evaltap.evaluator.monitoring.history import WatchState, firing, read_alerts, read_states
from evaltap.evaluator.monitoring.model import Event
from evaltap.evaluator.monitoring.replay import described, replay
from evaltap.evaluator.monitoring.rules import (
    alarmed_watches,
    chance_of,
    learns,
    read_rules,
    rebase,
)
from evaltap.evaluator.pipeline.batch.pricing import Price, price_lines, price_rules
from evaltap.evaluator.reports.console import console
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.database import open_store
from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted, did_you_mean, utc_text


def run(options: Any) -> int:  # of any action
    """Check the rules, print alarms, or give a watch a new baseline; return the exit code."""
    return _ACTIONS[type(options)](options)


def _check(options: MonitorCheckOptions) -> int:
    file, stores = _files(options)
    rules = read_rules(file)
    watches: list[dict[str, Json]] = []
    for one in rules.watch:
        chance = chance_of(one, rules) if learns(one) else None
        watches.append({"name": one.name, "false_alarms_per_month": chance})
    prices: list[Price] | None = None if rules.score else []
    if rules.score and stores:
        with open_stores(stores) as store:
            prices = price_rules(store, rules)
    if options.json:
        score = None if prices is None else [one.data() for one in prices]
        print_json({"watch": watches, "score": score})
        return 0
    number = "1 watch" if len(rules.watch) == 1 else f"{len(rules.watch):,} watches"
    print(f"valid: {number}, {counted(len(rules.score), 'score rule')}")
    for watch, data in zip(rules.watch, watches, strict=True):
        chance = data["false_alarms_per_month"]
        condition = fixed_limit(watch) if chance is None else f"{chance:.3g} false alarms a month"
        print(f"  {watch.name}: {condition}")
    for line in price_lines(rules, prices):
        print(line)
    return 0


def _files(options: MonitorCheckOptions) -> tuple[Path, Sequence[Path]]:
    given = [*options.files, *([options.rules] if options.rules else [])]
    files = [path for path in given if path.suffix != ".duckdb"]
    stores = [path for path in given if path.suffix == ".duckdb"]
    if len(files) != 1 or len(stores) > 1:
        raise InputError(
            "check: expected one file of rules and at most one DuckDB file: `evaltap monitor check"
            " monitor.json X.duckdb`"
        )
    usual = options.usual_store
    return files[0], stores or ([usual] if usual and usual.is_file() else [])


def _replay(options: MonitorReplayOptions) -> int:
    rules = read_rules(options.rules)
    with open_stores(options.db) as store:
        # Like `consume`, except that nobody knows whether turns are still landing.
        events = replay(store, rules, now=datetime.now(UTC))
    if options.json:
        print_json([event.data() for event in events])
    else:
        _print(events, options.db)
    return _code(events)


def _alerts(options: MonitorAlertsOptions) -> int:
    with open_stores(options.db) as store:
        alerts, states = read_alerts(store), read_states(store)
    if options.rules is not None:
        events = described([one.event for one in alerts], read_rules(options.rules))
        alerts = [replace(one, event=event) for one, event in zip(alerts, events, strict=True)]
    if options.json:
        print_json([one.data() for one in alerts])
    else:
        _print([one.event for one in alerts], options.db)
        if not alerts:
            print(f"no alarms so far; {_counted_states(states)}")
    return 1 if firing(alerts) else 0


def _counted_states(states: Sequence[WatchState]) -> str:
    if not states:
        return "no watch was evaluated yet: run `evaltap consume --monitor monitor.json`"
    counts = Counter(one.event.status for one in states)
    listed = ", ".join(f"{n} {status}" for status, n in counts.items())
    return f"watches: {listed} (`evaltap monitor status`)"


def _status(options: MonitorStatusOptions) -> int:
    with open_stores(options.db) as store:
        states = read_states(store)
    if options.json:
        rows = [{**one.event.data(), "evaluated_at": utc_text(one.evaluated_at)} for one in states]
        print_json(rows)
    elif not states:
        print(_counted_states(states))
    for one in [] if options.json else states:
        last = one.no_turn_since
        old = "" if last is None else f", no turn that counts since {last:%Y-%m-%d %H:%M} UTC"
        evaluated = f"; evaluated {one.evaluated_at:%Y-%m-%d %H:%M} UTC"
        print(visible(state_line(one.event) + old + evaluated))
    return _code([one.event for one in states]) if states else 3


def _rebase(options: MonitorRebaseOptions) -> int:
    watch, now = options.watch, datetime.now(UTC)
    with open_store(options.db, create=False) as store:
        rebase(store, watch, now)
        known = alarmed_watches(store)
    if options.json:
        print_json({"watch": watch, "learns_from": utc_text(now, "seconds")})
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
    return 3 if set(last.values()) <= {"learning", "waiting", "no_data"} else 0


def _print(events: list[Event], paths: Sequence[Path]) -> None:
    out = console()
    store = shlex.quote(str(paths[0])) if len(paths) == 1 else "X.duckdb"
    for event in events:
        for line in event_lines(event, store):
            style = "red" if event.status == "firing" else ""
            out.print(Text(visible(line), style=style), soft_wrap=True)


_ACTIONS: Final[Mapping[type[Any], Callable[[Any], int]]] = {
    MonitorCheckOptions: _check,
    MonitorReplayOptions: _replay,
    MonitorAlertsOptions: _alerts,
    MonitorStatusOptions: _status,
    MonitorRebaseOptions: _rebase,
}
