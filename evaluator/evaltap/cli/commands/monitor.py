"""`evaltap monitor`: which alarms watches on live traffic raise."""

import argparse
import json
import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_json, open_store, open_stores
from evaltap.cli.settings import STORE
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from evaltap.evaluator.batch.pricing import Price
    from evaltap.evaluator.monitoring.model import Event
    from evaltap.schemas.formats.model import Json
    from evaltap.schemas.formats.monitor import MonitorFile

ACTIONS = ("check", "replay", "alerts", "rebase")


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """What to do, with which files, by which rules."""

    action: str
    words: tuple[str, ...]
    rules: Path | None
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap monitor check monitor.json\n"
        "  evaltap monitor check monitor.json cases.duckdb\n"
        "  evaltap monitor replay cases.duckdb --rules monitor.json\n"
        "  evaltap monitor alerts cases.duckdb\n"
        "  evaltap monitor rebase cases.duckdb helpful\n\n"
        'monitor.json: {"falseAlarmsPerMonth": 0.05, "watch": [{"name": "helpful",\n'
        '  "signal": "pass_rate", "metric": "helpful", "where": {"app": "shop"}, "by": ["tool"]},\n'
        '  {"name": "slow", "signal": "slow_rate"}, {"name": "alive", "signal": "silence",\n'
        '  "minutes": 30}]}\n\n'
        "check looks at the rules, and with a DuckDB file says what they would score and spend a day, by\n"
        "the turns of the last 7 days. replay runs the watches over what is stored: the first days\n"
        "(`baselineDays`, 14) say what is usual. alerts lists what `evaltap consume --monitor` has found.\n"
        "rebase lets a watch learn anew from now on: after a change that is to stay.\n\n"
        "exit code: 0 nothing is firing at the end, 1 something is, 2 bad input, 3 nothing to say yet"
    )
    add = parser.add_argument
    add("action", choices=ACTIONS, help="what to do")
    add(
        "words",
        nargs="*",
        metavar="FILE",
        help="check: the rules, and a DuckDB file for their prices; replay, alerts: the DuckDB file, or"
        " several as one; rebase: the file and the name of a watch (default: the store of evaltap.toml)",
    )
    add("--rules", type=Path, metavar="monitor.json", help="what is watched")
    add_json(parser)
    parser.set_defaults(run=run, options=MonitorOptions)


def run(options: MonitorOptions) -> int:
    """Check the rules, print alarms, or let a watch begin anew; return the exit code."""
    actions = {"check": _check, "replay": _replay, "alerts": _alerts, "rebase": _rebase}
    return actions[options.action](options)


def _check(options: MonitorOptions) -> int:
    from evaltap.evaluator.monitoring.rules import SILENCE, chance_of, read_rules

    words = [*options.words, *([str(options.rules)] if options.rules else [])]
    files = [Path(word) for word in words if not word.endswith(".duckdb")]
    stores = [Path(word) for word in words if word.endswith(".duckdb")]
    if len(files) != 1 or len(stores) > 1:
        raise InputError(
            "check: looks at one file of rules, and at a DuckDB file for their prices;"
            " `evaltap monitor check monitor.json X.duckdb`"
        )
    rules = read_rules(files[0])
    watches: list[dict[str, Json]] = [
        {"name": one.name, "false_alarms_per_month": None if one.signal == SILENCE or one.has_limit
         else chance_of(one, rules)}
        for one in rules.watch
    ]  # fmt: skip
    prices = _prices(rules, stores or _usual_store())
    if options.json:
        score = None if prices is None else [one.data() for one in prices]
        print(json.dumps({"watch": watches, "score": score}, ensure_ascii=False))
        return 0
    print(f"in order: {counted(len(rules.score), 'score rule')}, watches: {len(rules.watch)}")
    for one in watches:
        chance = one["false_alarms_per_month"]
        said = "a fixed limit" if chance is None else f"{chance:.3g} false alarms a month"
        print(f"  {one['name']}: {said}")
    for line in _price_lines(rules, prices):
        print(line)
    return 0


def _usual_store() -> list[Path]:
    """Return the store of evaltap.toml, where there is one."""
    path = Path(os.environ.get(STORE, "").strip() or "none")
    return [path] if path.is_file() else []


def _prices(rules: "MonitorFile", stores: Sequence[Path]) -> "list[Price] | None":
    """Return what the rules would have scored and spent a day; None without a store."""
    from evaltap.evaluator.batch.pricing import price_rules

    if not rules.score or not stores:
        return None if rules.score else []
    with open_stores(stores) as store:
        return price_rules(store, rules)


def _price_lines(rules: "MonitorFile", prices: "Sequence[Price] | None") -> Iterator[str]:
    if prices is None:
        yield "what the score rules cost: add a DuckDB file to see it"
        return
    if rules.score and not prices:
        yield "what the score rules cost: no turn landed in the last 7 days"
    for one in prices:
        calls = (
            "calls of judges are not known"
            if one.calls is None
            else f"{one.calls:,.1f} judge calls"
        )
        usd = "cost is not known" if one.usd is None else f"{one.usd:,.4f} USD"
        yield f"  {one.rule}: a day {one.scored:,.1f} of {one.turns:,.1f} turns, {calls}, {usd}"
        if one.over_budget:
            yield "    more than its budget: the rate is lowered hour by hour"


def _replay(options: MonitorOptions) -> int:
    from evaltap.evaluator.monitoring.replay import replay
    from evaltap.evaluator.monitoring.rules import read_rules

    paths = [*map(Path, options.words)] or _usual_store()
    if not paths or options.rules is None:
        raise InputError(
            "replay: expected a DuckDB file and rules; `evaltap monitor replay X.duckdb --rules R`"
        )
    rules = read_rules(options.rules)
    with open_stores(paths) as store:
        events = replay(store, rules)
    if options.json:
        print(json.dumps([event.data() for event in events], ensure_ascii=False))
    else:
        _print(events)
    return _code(events)


def _alerts(options: MonitorOptions) -> int:
    from evaltap.evaluator.monitoring.history import firing, read_alerts

    paths = [*map(Path, options.words)] or _usual_store()
    if not paths:
        raise InputError("alerts: expected a DuckDB file; `evaltap monitor alerts X.duckdb`")
    with open_stores(paths) as store:
        alerts = read_alerts(store)
    if options.json:
        print(json.dumps([one.data() for one in alerts], ensure_ascii=False))
    else:
        _print([one.event for one in alerts])
        if not alerts:
            print("no alarm so far")
    return 1 if firing(alerts) else 0


def _rebase(options: MonitorOptions) -> int:
    from evaltap.evaluator.monitoring.starts import rebase

    if len(options.words) != 2:
        raise InputError(
            "rebase: expected a DuckDB file and a watch; `evaltap monitor rebase X.duckdb NAME`"
        )
    path, watch = options.words
    now = datetime.now(UTC)
    with open_store(Path(path), create=False) as store:
        rebase(store, watch, now)
    print(f"{watch}: turns from {now:%Y-%m-%d %H:%M} UTC on say what is usual")
    return 0


def _code(events: "list[Event]") -> int:
    last = {(one.watch, *one.slice.items()): one.status for one in events}
    if "firing" in last.values():
        return 1
    return 3 if set(last.values()) <= {"learning", "no_data"} else 0


def _print(events: "list[Event]") -> None:
    from rich.text import Text

    from evaltap.evaluator.reports.console import console
    from evaltap.evaluator.reports.safe_text import visible

    out = console()
    for event in events:
        for line in _lines(event):
            style = "red" if event.status == "firing" else ""
            out.print(Text(visible(line), style=style), soft_wrap=True)


def _lines(event: "Event") -> Iterator[str]:
    from evaltap.evaluator.monitoring.wording import explanation, of_limit

    slice_ = "".join(f" {name}={value}" for name, value in event.slice.items())
    at = "" if event.at is None else f", {event.at:%Y-%m-%d %H:%M} UTC"
    yield f"{event.status} {event.watch}{slice_}{at}"
    if event.low is not None:
        yield f"  {of_limit(event)}"
    elif event.rate_before is not None and event.rate_after is not None:
        since = "" if event.since is None else f" since {event.since:%Y-%m-%d}"
        yield (
            f"  {event.rate_before:.1%} -> {event.rate_after:.1%}{since};"
            f" a usual day reaches {event.most or 0:.1%}"
        )
    elif event.since is not None:
        yield f"  no turn since {event.since:%Y-%m-%d %H:%M} UTC"
    yield from (f"  {explanation(one)}" for one in event.changed)
    if event.cases:
        yield f"  cases: {' '.join(event.cases)}"
    if event.cases_filter:
        yield f"  all of them: evaltap cases X.duckdb {shlex.quote(event.cases_filter)}"
