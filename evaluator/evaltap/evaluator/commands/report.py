"""`evaltap report`: scores by metric, worst cases, what was not scored and why; on screen or in a file."""

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.evaluator.commands.guarding import add_guards, guarded_exit, worst_differences
from evaltap.evaluator.commands.options import add_database, add_json, open_store, positive
from evaltap.evaluator.reports.formats import FORMATS, format_of, render, write_report
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.store import Store


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap report results.duckdb                 # the latest score of every case\n"
        "  evaltap report results.duckdb --run 20261121-101500-ab12cd\n"
        "  evaltap report results.duckdb --out report.html\n"
        "  evaltap report results.duckdb --cases cases.evalset.json --out junit.xml\n"
        '  evaltap report results.duckdb --format markdown >> "$GITHUB_STEP_SUMMARY"\n\n'
        "exit code: 0 all passed, 1 something failed, 3 incomplete"
    )
    add_database(parser)
    add = parser.add_argument
    add("--run", dest="run_id", metavar="RUN", help="one run (see `evaltap runs`)")
    add(
        "--format",
        choices=("console", *FORMATS),
        help="what to print, or to write to --out (default: by its ending, or console)",
    )
    add("--out", type=Path, metavar="FILE", help="write a report: .html, .md, .xml or .json")
    add(
        "--cases",
        type=Path,
        action="append",
        default=[],
        metavar="CASES",
        help="files that were scored, read again for what happened in their turns; may be repeated",
    )
    add(
        "--references",
        type=Path,
        metavar="R.evalset.json",
        help="expected turns of landed cases, as they were given for scoring",
    )
    add(
        "--worst",
        type=positive,
        default=10,
        metavar="N",
        help="how many cases to list on the console (default: 10)",
    )
    add_json(parser)
    add_guards(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print or write the report; return the exit code."""
    wanted = options.format
    if options.out is not None:
        if wanted == "console" or options.json:
            raise InputError("--out: takes a file format; leave --json and --format console out")
        wanted = format_of(options.out, wanted)
    with open_store(options.db, create=False) as store:
        if wanted in (None, "console"):
            return _on_console(options, store)
        return _whole(options, store, wanted)


def _on_console(options: argparse.Namespace, store: "Store") -> int:
    from evaltap.evaluator.report import check_run, console, print_summary, summarise

    if options.run_id:
        check_run(store, options.run_id)
    summary = summarise(store, run_id=options.run_id, worst=options.worst)
    code = guarded_exit(options, store, summary, case_files=options.cases)
    differences = worst_differences(options, store, summary, case_files=options.cases)
    if options.json:
        print(json.dumps({**summary.data(), "exit_code": code}, ensure_ascii=False))
    elif not summary.metrics:
        ((landed,),) = store.rows("SELECT count(*) FROM latest_cases")
        print(
            f"no scores yet ({landed:,} landed cases); `evaltap score {options.db} --metrics M.json`"
        )
    else:
        print_summary(summary, console(), differences)
    return code


def _whole(options: argparse.Namespace, store: "Store", wanted: str) -> int:
    from evaltap.evaluator.pending import References
    from evaltap.evaluator.reports.reading import read_report

    report = read_report(
        store,
        run_id=options.run_id,
        case_files=options.cases,
        references=References(options.references) if options.references else None,
    )
    if options.out is None:
        sys.stdout.write(render(report, wanted))
    else:
        write_report(report, options.out, wanted)
        print(f"evaltap report: {wanted} report written to {options.out}", file=sys.stderr)
    return guarded_exit(options, store, report.summary, case_files=options.cases)
