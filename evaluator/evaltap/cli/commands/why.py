"""`evaltap why`: explain why a case was not scored."""

import argparse
import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_database, add_json, open_stores
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.settings import of_settings
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.reports.wording import readable
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.location import parse_log_location

if TYPE_CHECKING:
    from evaltap.evaluator.pipeline.maintenance.why import Answer


@dataclass(frozen=True, slots=True)
class WhyOptions:
    """The case to explain, and a log that may contain it."""

    db: Path
    case: str | None
    log: str | None
    json: bool
    chosen: FilterOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap why cases.duckdb session-42 --log agent.log.db\n"
        "  evaltap why cases.duckdb --filter 'status:not_evaluated,unscored tool:refund'\n\n"
        "CASE is the eval id, its beginning, or EVAL_SET/EVAL_ID. With --filter or --where, --json prints a"
        " list.\n\n"
        "exit code: 0 the case has a verdict for every metric; 2 bad input; 3 it lacks one, and the output"
        " explains why"
    )
    add_database(parser)
    parser.add_argument("case", nargs="?", metavar="CASE", help="the case to explain")
    log = parser.add_argument(
        "--log", metavar="LOG", help="also search this log: a file, or kafka://host:port/topic"
    )
    of_settings(log, "EVALTAP_LOG")
    add_filter(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=WhyOptions)


def run(options: WhyOptions) -> int:
    """Explain the case, or each case that matches the filter."""
    from evaltap.evaluator.analysis.filters.listing import full_name
    from evaltap.evaluator.pipeline.maintenance.why import explained, why

    if (options.case is None) == (not options.chosen.choice()):
        raise InputError("expected either a CASE or a choice of cases with --filter or --where")
    log = parse_log_location(options.log) if options.log else None
    with open_stores([options.db]) as store:
        if options.case is not None:
            answers = iter([("", why(store, full_name(store, options.case), log))])
        else:
            found = explained(store, options.chosen.keys(store) or [])
            answers = ((key[2], answer) for key, answer in found)
        if options.json:
            return _print_json(answers, single=options.case is not None)
        complete = True
        for eval_id, answer in answers:
            _print(answer, eval_id and f"{eval_id}: ")
            complete = complete and answer.complete
    return 0 if complete else 3


def _print_json(answers: "Iterator[tuple[str, Answer]]", *, single: bool) -> int:
    data = [{**asdict(one), "complete": one.complete} for _, one in answers]
    print(json.dumps(data[0] if single else data, ensure_ascii=False))
    return 0 if all(one["complete"] for one in data) else 3


def _print(answer: "Answer", before: str) -> None:
    """Print the explanation of a case: a line for each metric and note."""
    for metric in answer.metrics:
        reason = " ".join(readable(metric.reason).split())
        line = f"{metric.metric_name}: {metric.status}{': ' if reason else ''}{reason}"
        print(visible(f"{before}{line}"))
    for note in answer.notes:
        print(visible(f"{before}{note}"))
