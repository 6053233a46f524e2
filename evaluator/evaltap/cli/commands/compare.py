"""`evaltap compare`: what changed from one run to another, and whether that is worse."""

import argparse
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_json
from evaltap.cli.options.comparing import RuleOptions, add_rules
from evaltap.cli.parsing import report_file

if TYPE_CHECKING:
    from evaltap.evaluator.compare.model import Comparison

_STYLES = {"-": "red", "+": "green", "!": "yellow", ">": "yellow"}


@dataclass(frozen=True, slots=True)
class CompareOptions:
    """The two sides, what counts as worse, and where the comparison is written."""

    base: str
    head: str
    report: tuple[Path, ...]
    json: bool
    rules: RuleOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap compare main.duckdb branch.duckdb\n"
        "  evaltap compare results.duckdb#20261121-101500-ab12cd results.duckdb#20261122-090000-12cdef\n"
        "  evaltap compare baseline.json now.duckdb --report pr.md --report junit.xml\n"
        "  evaltap compare old.evalset_result.json new.evalset_result.json --max-drop 0.05\n"
        "  evaltap compare base.scores.jsonl head.scores.jsonl --json\n\n"
        "A side is a DuckDB file (all its runs are trials, or those of FILE#RUN,RUN), a baseline.json or\n"
        "JSON Lines of scores (`evaltap runs export`), or a result file with several runs.\n"
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
    add_rules(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=CompareOptions)


def run(options: CompareOptions) -> int:
    """Compare, print and write; return the exit code."""
    from evaltap.evaluator.compare.comparison import compare
    from evaltap.evaluator.compare.reading import read_side

    rules = options.rules.rules()
    found = compare(read_side(options.base), read_side(options.head), rules)
    show(found, "compare", options.report, as_json=options.json)
    return found.exit_code


def show(found: "Comparison", command: str, reports: tuple[Path, ...], *, as_json: bool) -> None:
    """Print a comparison and write its reports."""
    from evaltap.evaluator.compare.formats import write_comparison

    if as_json:
        from evaltap.evaluator.compare.data import comparison_data

        print(json.dumps(comparison_data(found), ensure_ascii=False))
    else:
        print_comparison(found)
    for path in reports:
        write_comparison(found, path)
        print(f"evaltap {command}: report written to {path}", file=sys.stderr)


def print_comparison(found: "Comparison") -> None:
    """Print a comparison on the console."""
    from rich.text import Text

    from evaltap.evaluator.compare.console import console_lines
    from evaltap.evaluator.reports.console import console

    out = console()
    for number, line in enumerate(console_lines(found)):
        style = _STYLES.get(line.strip()[:1], "") if line.startswith("    ") else ""
        out.print(Text(line, style="bold" if number == 0 else style), soft_wrap=True)
