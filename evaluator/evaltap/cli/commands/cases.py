"""`evaltap cases`: list the landed cases that match a filter, as a table."""

import argparse
import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import add_database, add_json, open_stores
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.parsing import positive
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from rich.console import Console

    from evaltap.evaluator.analysis.filters.listing import ListedCase, ListPage

NARROW = 80
"""Width of the table without a terminal."""
FIRST_WORDS, TOOLS = "first words", "tools"
_THUMBS = {"up": "+", "down": "-", "mixed": "+-"}


@dataclass(frozen=True, slots=True)
class CasesOptions:
    """The cases to list."""

    db: Path
    limit: int
    json: bool
    chosen: FilterOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    from evaltap.evaluator.analysis.filters.language import FIELDS

    fields = "\n".join(f"  {name + ':':<13}{meaning}" for name, meaning in FIELDS.items())
    parser.epilog = (
        "examples:\n"
        "  evaltap cases cases.duckdb\n"
        "  evaltap cases cases.duckdb tool:refund status:failed since:7d\n"
        "  evaltap cases cases.duckdb 'refund \"too late\" -feedback:up sort:worst'\n"
        "  evaltap cases cases.duckdb --where \"tool_count > 5 AND outcome = 'failed'\"\n\n"
        "A case matches when it meets every term of the filter:\n"
        "  word         is in a question or an answer\n"
        '  "two words"  quotes keep words together\n'
        "  field:a,b    the field has one of these values\n"
        "  -term        a minus excludes; put -- before a filter that begins with one\n\n"
        "Fields:\n"
        f"{fields}\n\n"
        "Column fb: + thumbs up, - thumbs down\n\n"
        "exit code: 0 listed, even if nothing matches; 2 bad input"
    )
    add_database(parser)
    add_filter(parser, positional=True)
    parser.add_argument(
        "--limit", type=positive, default=50, metavar="N", help="list at most N cases (default: 50)"
    )
    add_json(parser)
    parser.set_defaults(run=run, options=CasesOptions)


def run(options: CasesOptions) -> int:
    """List the cases."""
    from evaltap.evaluator.analysis.filters.listing import list_page
    from evaltap.evaluator.analysis.filters.restricted import unknown_values
    from evaltap.evaluator.analysis.summaries.summaries import catch_up

    choice = options.chosen.choice()
    with open_stores([options.db]) as store:
        catch_up(store)
        found = list_page(store, choice, options.limit)
        unknown = [] if found.matched else [*unknown_values(store, choice.filter)]
    if options.json:
        print(json.dumps([case.data() for case in found.cases], ensure_ascii=False))
        return 0
    from evaltap.evaluator.reports.console import console

    _print(found, console())
    if not found.matched:
        fits = f"no case matches {choice.text}" if choice else "no case has landed yet"
        fits = "; ".join([fits, *unknown])
        print(f"evaltap cases: {options.db}: {fits}", file=sys.stderr)
    return 0


def _print(found: "ListPage", out: "Console") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.analysis.filters.listing import SHORT

    if not found.cases:
        return
    width = out.width if out.is_terminal else NARROW
    columns = _columns(found.cases, max(SHORT, width - NARROW))
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    for name, wide in _widths(columns, width).items():
        table.add_column(name, no_wrap=True, width=wide)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(cell, overflow="ellipsis") for cell in cells))
    out.print(table, width=width)
    listed = len(found.cases)
    more = f" of {found.matched:,} (--limit lists more)" if listed < found.matched else ""
    out.print(f"{counted(listed, 'case')}{more}", soft_wrap=True)


def _columns(cases: "Sequence[ListedCase]", id_width: int) -> dict[str, list[str]]:
    """Return the cells by column, without empty columns."""
    from evaltap.evaluator.analysis.filters.listing import shortened
    from evaltap.evaluator.cases.text import one_line
    from evaltap.evaluator.reports.safe_text import visible

    times = [case.started_at for case in cases]
    columns = {
        "id": [shortened(visible(case.eval_id), id_width) for case in cases],
        "time (UTC)": [at.strftime("%m-%d %H:%M") if at else "-" for at in times],
        FIRST_WORDS: [one_line(visible(case.opening), 100) for case in cases],
        TOOLS: [visible(", ".join(case.tools)) for case in cases],
        "outcome": [case.outcome.replace("not_evaluated", "not eval") for case in cases],
        "fb": [_THUMBS.get(case.feedback or "", "") for case in cases],
        "version": [one_line(visible(case.version or ""), 10) for case in cases],
    }
    return {name: cells for name, cells in columns.items() if name == FIRST_WORDS or any(cells)}


def _widths(columns: dict[str, list[str]], width: int) -> dict[str, int]:
    """Return the width of each column: that of its cells; tools and words share the remaining space."""
    widths = {name: max(map(len, (name, *cells))) for name, cells in columns.items()}
    left = width - 2 * len(widths) - sum(
        wide for name, wide in widths.items() if name not in (FIRST_WORDS, TOOLS)
    )  # fmt: skip
    tools, words = widths.get(TOOLS, 0), widths[FIRST_WORDS]
    if tools + words > left:
        tools = min(tools, max(left // 2, left - words))
        words = left - tools
    return widths | {FIRST_WORDS: words} | ({TOOLS: tools} if TOOLS in widths else {})
