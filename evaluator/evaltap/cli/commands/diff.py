"""`evaltap diff`: show how two eval sets differ."""

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_json
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from evaltap.evaluator.cases.evalsets.difference import Difference

SHOWN_FIELDS = 12


@dataclass(frozen=True, slots=True)
class DiffOptions:
    """The two sets."""

    before: Path
    after: Path
    content: bool
    json: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap diff golden.evalset.json new.evalset.json\n"
        "  git show main:golden.evalset.json > /tmp/before.evalset.json\n"
        "  evaltap diff /tmp/before.evalset.json golden.evalset.json --content\n\n"
        "signs: - removed, + added, ~ changed, > renamed\n"
        "exit code: 0 equal, 1 different, 2 bad input"
    )
    parser.add_argument(
        "before",
        type=Path,
        metavar="A",
        help="the older eval set (.evalset.json, or JSON Lines of cases)",
    )
    parser.add_argument("after", type=Path, metavar="B", help="the newer one")
    parser.add_argument(
        "--content",
        action="store_true",
        help="compare only inputs, references, rubrics and context, not recordings and provenance",
    )
    add_json(parser)
    parser.set_defaults(run=run, options=DiffOptions)


def run(options: DiffOptions) -> int:
    """Print the differences between the sets."""
    from evaltap.evaluator.cases.evalsets.difference import difference, only_content
    from evaltap.evaluator.cases.evalsets.files import read_set

    found = difference(read_set(options.before).cases, read_set(options.after).cases)
    if options.content:
        found = only_content(found)
    if options.json:
        print(json.dumps({**found.data(), "exit_code": int(bool(found))}, ensure_ascii=False))
    else:
        print_difference(found)
    return int(bool(found))


def print_difference(found: "Difference") -> None:
    """Print a difference for people."""
    from evaltap.evaluator.cases.evalsets.content import user_texts
    from evaltap.evaluator.cases.evalsets.difference import shown
    from evaltap.evaluator.reports.safe_text import visible

    def line(text: str) -> None:
        print(visible(text))

    for sign, cases in (("-", found.removed), ("+", found.added)):
        for case in cases:
            line(f"{sign} {case['evalId']}  {shown(' / '.join(user_texts(case)))[:100]}")
    for before, after in found.renamed:
        line(f"> {before} is {after} now")
    for change in found.changed:
        line(f"~ {change.eval_id}")
        for field in change.fields[:SHOWN_FIELDS]:
            line(f"    {field.place}")
            if field.before is not None:
                line(f"    - {shown(field.before)}")
            if field.after is not None:
                line(f"    + {shown(field.after)}")
        if len(change.fields) > SHOWN_FIELDS:
            line(f"    ... {len(change.fields) - SHOWN_FIELDS:,} more fields (--json lists all)")
    counts = [
        f"{len(cases):,} {name}"
        for name, cases in (
            ("added", found.added),
            ("removed", found.removed),
            ("changed", found.changed),
            ("renamed", found.renamed),
        )
        if cases
    ]
    print(f"{', '.join(counts) or 'no difference'}; {counted(found.same, 'case')} the same")
