"""`evaltap estimate`: estimate the pass rate of all traffic from the turns that sampling kept."""

import argparse
import json
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from evaltap.cli.options.common import add_databases, add_json, add_period, open_stores
from evaltap.cli.parsing import names
from evaltap.schemas.errors import InputError


@dataclass(frozen=True, slots=True)
class EstimateOptions:
    """The turns, the slices, and the human labels."""

    db: tuple[Path, ...]
    metric: str
    signal: str
    by: tuple[str, ...]
    since: datetime | None
    until: datetime | None
    where: str
    labels: Path | None
    json: bool


_EPILOG: Final = (
    "examples:\n"
    "  evaltap estimate cases.duckdb\n"
    "  evaltap estimate cases.duckdb --metric helpful --by tool --since 7d\n"
    "  evaltap estimate cases.duckdb --where \"'refund' IN tools\"\n"
    "  evaltap estimate cases.duckdb --signal error_rate --by app --json\n"
    "  evaltap estimate cases.duckdb --metric helpful --labels labels.jsonl\n\n"
    "low, high: 95 % interval of the rate for this agent and its users in general\n"
    "traffic_low, traffic_high: the same for the turns of this window only\n\n"
    "Signals:\n"
    "  pass_rate, not_scored, judge_disagreement        for each metric\n"
    "  error_rate, tool_error_rate, negative_feedback   for all turns\n"
    "  slow_rate, costly_rate, long_rate                turns above 95 % of stored turns\n\n"
    "Flags:\n"
    "  uncovered       some turns had no chance of being recorded\n"
    "  few_sessions    effectively fewer than 10 sessions\n"
    "  open            the window has not ended\n"
    "  no_labels:...   no labels for passed (or failed) verdicts\n\n"
    "exit code: 0 estimated, 2 bad input, 3 nothing to estimate from"
)


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = _EPILOG
    add = parser.add_argument
    add_databases(parser)
    add("--metric", default="", metavar="NAME", help="only this metric (default: all)")
    add(
        "--signal",
        default="pass_rate",
        metavar="NAME",
        help="the share to estimate (default: pass_rate)",
    )
    add(
        "--by",
        type=names,
        default=[],
        metavar="NAME,...",
        help="also estimate for each value of: app, tool, tool_path, model, service, agent, version,"
        " language, environment, tag, run, hour, day, week",
    )
    add_period(parser)
    add(
        "--where",
        default="",
        metavar="SQL",
        help="an SQL condition on turns: app, service, status, tools, models, latency_ms, user_text, ...",
    )
    add(
        "--labels",
        type=Path,
        metavar="FILE",
        help="human labels (as for `evaltap calibrate`, or a .duckdb file with reviews), to estimate"
        " the pass rate that people would find",
    )
    add_json(parser)
    parser.set_defaults(run=run, options=EstimateOptions)


def run(options: EstimateOptions) -> int:
    """Estimate and print the rates; return 3 when there is no turn to estimate from."""
    from evaltap.evaluator.analysis.estimates.labels import read_labels
    from evaltap.evaluator.analysis.estimates.rates import estimate_rates
    from evaltap.evaluator.analysis.estimates.scope import Scope

    if options.labels and options.signal != "pass_rate":
        raise InputError(f"--labels corrects the pass rate, not --signal {options.signal}")
    if options.since and options.until and options.since >= options.until:
        raise InputError("--until: expected a time after --since")
    labels = read_labels(options.labels) if options.labels else []
    scope = Scope(
        metric=options.metric, since=options.since, until=options.until, where=options.where
    )
    with open_stores(options.db) as store:
        found = estimate_rates(store, scope, by=options.by, signal=options.signal, labels=labels)
    if options.json:
        print(json.dumps([rate.data() for rate in found.rates], ensure_ascii=False))
    else:
        from evaltap.evaluator.reports.console import console
        from evaltap.evaluator.reports.rates import print_rates

        print_rates(found.rates, options.by, console())
    for note in found.notes:
        print(f"evaltap estimate: {note}", file=sys.stderr)
    if any(rate.estimate for rate in found.rates):
        return 0
    print(
        f"evaltap estimate: {', '.join(map(str, options.db))}: no landed turn is relevant for"
        f" {options.signal}; land and score some with `evaltap consume`, or widen the selection",
        file=sys.stderr,
    )
    return 3
