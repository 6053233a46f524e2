"""`evaltap report`: scores by metric, worst cases, and what was not scored and why."""

import argparse
import json

from evaltap.evaluator.commands.options import add_database, add_json, open_store, positive
from evaltap.schemas.errors import InputError


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap report results.duckdb                 # the latest score of every case\n"
        "  evaltap report results.duckdb --run 20261121-101500-ab12cd\n\n"
        "exit code: 0 all passed, 1 something failed, 3 incomplete"
    )
    add_database(parser)
    parser.add_argument("--run", dest="run_id", metavar="RUN", help="one run (see `evaltap runs`)")
    parser.add_argument(
        "--worst",
        type=positive,
        default=10,
        metavar="N",
        help="how many cases to list (default: 10)",
    )
    add_json(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the summary; return its exit code."""
    from evaltap.evaluator.report import console, print_summary, summarise

    with open_store(options.db, create=False) as store:
        known = [row[0] for row in store.rows("SELECT run_id FROM runs ORDER BY started_at")]
        if options.run_id and options.run_id not in known:
            raise InputError(f"no run {options.run_id!r}; runs here: {', '.join(known) or 'none'}")
        summary = summarise(store, run_id=options.run_id, worst=options.worst)
        landed = store.rows("SELECT count(*) FROM latest_cases")[0][0]
    if options.json:
        print(json.dumps(summary.data(), ensure_ascii=False))
        return summary.exit_code
    if not summary.metrics:
        print(
            f"no scores yet ({landed:,} landed cases); `evaltap score {options.db} --metrics M.json`"
        )
        return 3
    print_summary(summary, console())
    return summary.exit_code
