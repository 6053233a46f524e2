"""`evaltap compare`: what changed from one run to another, and whether that is worse."""

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
    """The two sides, what counts as worse, and where the comparison is written."""

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
        "  evaltap compare cases.duckdb#20261121-101500-ab12cd cases.duckdb#20261122-090000-12cdef\n"
        "  evaltap compare baseline.json now.duckdb --report pr.md --report junit.xml\n"
        "  evaltap compare old.evalset_result.json new.evalset_result.json --max-drop 0.05\n"
        "  evaltap compare base.scores.jsonl head.scores.jsonl --json\n"
        "  evaltap compare cases.duckdb@2026-11-01/2026-11-08 cases.duckdb@2026-11-08/2026-11-15\n\n"
        "A side is a DuckDB file (all its runs are trials, or those of FILE#RUN,RUN), a baseline.json or\n"
        "JSON Lines of scores (`evaltap runs export`), or a result file with several runs.\n"
        "FILE@SINCE/UNTIL and FILE@NAME=VALUE,... (names as in `evaltap estimate --by`) are slices of\n"
        "live traffic: other sessions on either side, compared by their estimated pass rates.\n"
        "Cases are paired by app, eval set and eval id. What repeats say of a case:\n"
        "  regressed    worse, certain among all cases   suspect      worse by itself only, p <= 0.05\n"
        "  improved     better by itself                 flaky        passes and fails, no change seen\n"
        "  newly flaky  never failed in 10 trials before missing      no verdict on a side\n\n"
        "exit code: 0 no regression, 1 worse or below the bar, 2 bad input, 3 could not be decided"
    )
    add = parser.add_argument
    add("base", metavar="BASE", help="what to compare with: main, the released version, last week")
    add("head", metavar="HEAD", help="what is new")
    add(
        "--report", type=report_file, action="append", default=[], metavar="FILE",
        help="also write it: .html, .md (Markdown for a pull request), .xml (JUnit) or .json; may be"
        " repeated",
    )  # fmt: skip
    add(
        "--fail-on", choices=("regressed", "never"), default="regressed",
        help="regressed: what is worse or undecided (default); never: 0 whatever is found",
    )  # fmt: skip
    add_rules(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=CompareOptions)


def run(options: CompareOptions) -> int:
    """Compare, print and write; return the exit code."""
    from evaltap.evaluator.compare.data import comparison_data
    from evaltap.evaluator.compare.formats import write_comparison
    from evaltap.evaluator.compare.reading import compare_sides

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
