"""`evaltap coverage`: show what occurs in production but not in eval sets."""

import argparse
import json
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_databases, add_json, add_period, open_stores
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.parsing import names, positive
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.curation.coverage import Coverage


@dataclass(frozen=True, slots=True)
class CoverageOptions:
    """The sets, the traffic, and the dimensions to compare by."""

    db: tuple[Path, ...]
    sets: tuple[Path, ...]
    by: tuple[str, ...]
    app: str
    since: datetime | None
    until: datetime | None
    min: int
    fold: bool
    json: bool
    chosen: FilterOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap coverage cases.duckdb --set golden.evalset.json\n"
        "  evaltap coverage cases.duckdb --set golden.evalset.json --by tools,intent \\\n"
        "      --since 7d --json\n\n"
        "Coverage is the share of traffic turns whose value has cases in the sets, with its 95 %"
        " interval. Gaps are the values without cases, most frequent first.\n\n"
        "Dimensions for --by:\n"
        "  tools     the tools of a turn, in order\n"
        "  tool      each tool that was called\n"
        "  model     the model\n"
        "  language  the language of the question\n"
        "  intent    a group of near-duplicate questions, named by one of them\n"
        "  version   the agent's version\n\n"
        "exit code: 0 compared, 2 bad input, 3 no turn to compare with"
    )
    add = parser.add_argument
    add_databases(parser)
    add(
        "--set", dest="sets", action="append", required=True, type=Path, metavar="SET",
        help="an eval set to compare with; may be repeated",
    )  # fmt: skip
    add("--by", type=names, default=["tools", "tool", "language", "intent"], metavar="NAME,...",
        help="dimensions to compare by (default: tools,tool,language,intent)")  # fmt: skip
    add("--app", default="", metavar="A", help="only this application (default: all)")
    add_period(parser)
    add(
        "--min",
        type=positive,
        default=1,
        metavar="N",
        help="number of cases that are enough to cover a value (default: 1)",
    )
    add(
        "--fold",
        action="store_true",
        help="count consecutive calls of one tool once in a tool path",
    )
    add_filter(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=CoverageOptions)


def run(options: CoverageOptions) -> int:
    """Compare the sets with the traffic and print the result."""
    from evaltap.evaluator.cases.evalsets.files import read_set
    from evaltap.evaluator.curation.coverage import coverage
    from evaltap.evaluator.curation.values import (
        Period,
        check_app,
        check_dimensions,
        seen_in,
        seen_of_set,
    )

    check_dimensions(options.by)
    sets = [read_set(path).cases for path in options.sets]
    with open_stores(options.db) as store:  # cases may come from turns that the filter excludes
        check_app(store, options.app)
        cases = [turn for of_set in sets for turn in seen_of_set(of_set, store)]
    with options.chosen.open(options.db) as store:
        seen = seen_in(store, Period(options.since, options.until, options.app))
    if not seen:
        raise NothingSeenError("no turn has landed that matches; choose another period or --filter")
    found = [
        coverage(name, seen, cases, fewest=options.min, fold=options.fold) for name in options.by
    ]
    if options.json:
        print(json.dumps([one.data() for one in found], ensure_ascii=False))
    else:
        _print(found)
    return 0


class NothingSeenError(InputError):
    """Report that there is no turn to compare with."""

    exit_code = 3


def _print(found: "list[Coverage]") -> None:
    from evaltap.evaluator.reports.safe_text import visible

    for one in found:
        assert one.covered is not None  # there are turns
        ends = one.covered.rate.interval
        print(
            f"{one.by}: {one.covered.rate.value:.1%} of the traffic is covered ({ends.low:.1%} to"
            f" {ends.high:.1%}, {one.covered.rate.n:,} {one.unit}s)"
        )
        for gap in one.gaps:
            value = f"{visible(gap.text)!r:.60}" if gap.text else visible(gap.value) or "(none)"
            low, high = gap.share.interval
            print(
                f"  missing {value}: {gap.share.value:.1%} ({low:.1%} to {high:.1%}),"
                f" for example {visible(gap.examples[0].name)}"
            )
        if one.unseen:
            shown = ", ".join(visible(value) or "(none)" for value in one.unseen[:5])
            print(f"  in the sets, but not in this traffic: {shown}")
