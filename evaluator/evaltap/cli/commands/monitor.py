"""`evaltap monitor`: which alarms watches on live traffic raise."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_json, open_stores

if TYPE_CHECKING:
    from evaltap.evaluator.monitoring.model import Changed, Event

ACTIONS = ("check", "replay")


@dataclass(frozen=True, slots=True)
class MonitorOptions:
    """What to do, the rules, and the files whose turns are watched."""

    action: str
    db: tuple[Path, ...]
    rules: Path
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap monitor check --rules monitor.json\n"
        "  evaltap monitor replay prod.duckdb --rules monitor.json\n\n"
        'monitor.json: {"falseAlarmsPerMonth": 0.05, "watch": [{"name": "helpful",\n'
        '  "signal": "pass_rate", "metric": "helpful", "where": {"app": "shop"}, "by": ["tool"]},\n'
        '  {"name": "slow", "signal": "slow_rate"}, {"name": "alive", "signal": "silence",\n'
        '  "minutes": 30}]}\n\n'
        "replay runs the watches over what is stored: the first days (`baselineDays`, 14) say what is\n"
        "usual. The same file gives the same alarms, so a timer that calls it watches live traffic.\n\n"
        "exit code: 0 nothing is firing at the end, 1 something is, 2 bad input, 3 nothing to say yet"
    )
    add = parser.add_argument
    add("action", choices=ACTIONS, help="check the rules, or replay what is stored")
    add("db", nargs="*", type=Path, metavar="X.duckdb", help="replay: the file, or several as one")
    add("--rules", type=Path, required=True, metavar="monitor.json", help="what is watched")
    add_json(parser)
    parser.set_defaults(run=run, options=MonitorOptions)


def run(options: MonitorOptions) -> int:
    """Check the rules, or print the alarms; return the exit code."""
    from evaltap.evaluator.monitoring.replay import replay
    from evaltap.evaluator.monitoring.rules import chance_of, read_rules
    from evaltap.schemas.errors import InputError

    rules = read_rules(options.rules)
    if options.action == "check":
        if options.db:
            raise InputError("check: looks at the rules only; leave the DuckDB file out")
        chances = [{"watch": one.name, "falseAlarmsPerMonth": chance_of(one, rules)}
                   for one in rules.watch if one.signal != "silence"]  # fmt: skip
        print(json.dumps(chances) if options.json else f"{len(rules.watch)} watches, all in order")
        return 0
    if not options.db:
        raise InputError(
            "replay: expected a DuckDB file; `evaltap monitor replay X.duckdb --rules R`"
        )
    with open_stores(options.db) as store:
        events = replay(store, rules)
    if options.json:
        print(json.dumps([event.data() for event in events], ensure_ascii=False))
    else:
        _print(events)
    return _code(events)


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
    slice_ = "".join(f" {name}={value}" for name, value in event.slice.items())
    at = "" if event.at is None else f", {event.at:%Y-%m-%d %H:%M} UTC"
    yield f"{event.status} {event.watch}{slice_}{at}"
    if event.rate_before is not None and event.rate_after is not None:
        since = "" if event.since is None else f" since {event.since:%Y-%m-%d}"
        yield (
            f"  {event.rate_before:.1%} -> {event.rate_after:.1%}{since};"
            f" a usual day reaches {event.most or 0:.1%}"
        )
    elif event.since is not None:
        yield f"  no turn since {event.since:%Y-%m-%d %H:%M} UTC"
    yield from (f"  {_explanation(one)}" for one in event.changed)
    if event.cases:
        yield f"  cases: {' '.join(event.cases)}"


def _explanation(one: "Changed") -> str:
    if one.kind == "mix":
        shares = f"{one.share_before:.1%} -> {one.share_after:.1%} of the turns"
        return f"{one.by} {one.value}: {shares}; users changed, not the agent"
    rates = f"{one.rate_before:.1%} -> {one.rate_after:.1%}"
    return f"{one.by} {one.value}: {rates}, {100 * one.effect:.1f} points of all turns"
