"""`evaltap why`: why a case was not scored."""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from evaltap.cli.options.common import add_database, add_json, open_store
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.log.location import parse_log_location


@dataclass(frozen=True, slots=True)
class WhyOptions:
    """The case to explain, and a log that may hold it."""

    db: Path
    case: str
    log: str | None
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "example: evaltap why cases.duckdb session-42 --log agent.log.db\n\n"
        "CASE is the eval id, or <eval set id>/<eval id>.\n"
        "exit code: 0 it has a verdict under every metric, 3 it has not, and the output says why"
    )
    add_database(parser)
    parser.add_argument("case", metavar="CASE")
    parser.add_argument(
        "--log", metavar="LOG", help="a log to look for it: a file, or kafka://host:port/topic"
    )
    add_json(parser)
    parser.set_defaults(run=run, options=WhyOptions)


def run(options: WhyOptions) -> int:
    """Look for the case and say what is found."""
    from evaltap.evaluator.maintenance.why import why

    log = parse_log_location(options.log) if options.log else None
    with open_store(options.db, create=False) as store:
        answer = why(store, options.case, log)
    if options.json:
        print(json.dumps({**asdict(answer), "complete": answer.complete}, ensure_ascii=False))
    else:
        for metric in answer.metrics:
            reason = " ".join(metric.reason.split())
            print(visible(f"{metric.metric_name}: {metric.status}{': ' if reason else ''}{reason}"))
        for note in answer.notes:
            print(visible(note))
    return 0 if answer.complete else 3
