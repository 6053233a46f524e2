"""`evaltap compare`: show what changed between two runs, and whether it is worse."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path

from evaltap.cli.options.common import add_json
from evaltap.cli.options.comparing import RuleOptions, add_rules, print_comparison
from evaltap.cli.parsing import report_file


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The two sides, the rules that decide what is worse, and the reports to write."""

    base: str
    head: str
    report: tuple[Path, ...]
    fail_on: str
    json: bool
    rules: RuleOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap compare main.duckdb branch.duckdb\n"
        "  evaltap compare cases.duckdb#20261121-101500-ab12cd now.duckdb\n"
        "  evaltap compare baseline.json now.duckdb --report pr.md --report junit.xml\n"
        "  evaltap compare baseline.json now.duckdb --max-drop 0.05 --json\n"
        "  evaltap compare cases.duckdb@2026-11-01/2026-11-08 \\\n"
        "      cases.duckdb@2026-11-08/2026-11-15\n\n"
        "BASE and HEAD are each one of:\n"
        "  X.duckdb, X.duckdb#RUN,RUN      all its runs, or these runs, as trials\n"
        "  baseline.json, X.scores.jsonl   written by `evaltap runs export`\n"
        "  X.evalset_result.json           a result file with several runs\n"
        "  X.duckdb@SINCE/UNTIL            live traffic of a period\n"
        "  X.duckdb@NAME=VALUE,...         live traffic with these values; the names are those of"
        " `evaltap estimate --by`\n"
        "Live traffic is compared by estimated pass rates.\n\n"
        "Cases are paired by app, eval set and eval id. The finding for each case:\n"
        "  regressed    worse, allowing for the number of cases\n"
        "  suspect      worse on its own only, p <= 0.05\n"
        "  improved     better on its own\n"
        "  flaky        passes and fails, no change seen\n"
        "  newly flaky  never failed in 10 trials before\n"
        "  missing      no verdict on one side\n\n"
        "exit code: 0 no regression, 1 worse or below the bar, 2 bad input, 3 undecided"
    )
    add = parser.add_argument
    add(
        "base",
        metavar="BASE",
        help="the side to compare with: main, the released version, last week",
    )
    add("head", metavar="HEAD", help="the new side")
    add(
        "--report", type=report_file, action="append", default=[], metavar="FILE",
        help="also write a report: .html, .md (Markdown for a pull request), .xml (JUnit) or .json; may be"
        " repeated",
    )  # fmt: skip
    add(
        "--fail-on", choices=("regressed", "never"), default="regressed",
        help="regressed: fail when something is worse or undecided (default); never: always exit with 0",
    )  # fmt: skip
    add_rules(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=CompareOptions)


def run(options: CompareOptions) -> int:
    """Compare the sides, print the result and write the reports; return the exit code."""
    from evaltap.evaluator.reports.compare.formats import write_comparison
    from evaltap.evaluator.reports.compare.model import comparison_data
    from evaltap.evaluator.reports.compare.reading import compare_sides

    rules = options.rules.rules()
    found = compare_sides(options.base, options.head, rules)
    if options.json:
        print(json.dumps(comparison_data(found), ensure_ascii=False))
    else:
        print_comparison(found)
    for path in options.report:
        write_comparison(found, path)
        print(f"evaltap compare: report written to {path}", file=sys.stderr)
    return 0 if options.fail_on == "never" else found.exit_code
