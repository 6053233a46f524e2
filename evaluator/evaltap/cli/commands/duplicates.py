"""`evaltap duplicates`: group turns that are near-duplicates."""

import argparse
import json
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from evaltap.cli.options.common import add_database, add_json, add_period, progress
from evaltap.cli.options.filtering import FilterOptions, add_filter
from evaltap.cli.parsing import amount
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

if TYPE_CHECKING:
    from evaltap.evaluator.curation.grouping import TurnGroup

SHOWN = 20
COLUMNS = ("turns", "first words", "tools", "outcome", "case")
TOOLS = 18
NARROW = 80
"""Width of the table without a terminal."""


@dataclass(frozen=True, slots=True)
class DuplicatesOptions:
    """The turns to compare, and the similarity that makes two turns near-duplicates."""

    db: Path
    radius: float
    semantic: float | None
    since: datetime | None
    until: datetime | None
    json: bool
    chosen: FilterOptions


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap duplicates cases.duckdb\n"
        "  evaltap duplicates cases.duckdb --filter since:7d --json\n\n"
        "Turns with the same application, tools and outcome are compared by the Jaccard similarity"
        " of their 4-character shingles. All words that contain a digit count as the same word.\n\n"
        "exit code: 0 grouped, 2 bad input"
    )
    add_database(parser)
    add = parser.add_argument
    add(
        "--radius", type=amount, default=0.5, metavar="X",
        help="lowest similarity to the medoid of a group, 0 to 1 (default: 0.5)",
    )  # fmt: skip
    add(
        "--semantic", type=amount, metavar="X",
        help="also group turns whose word vectors have at least this cosine similarity"
        " (evaltap[embeddings]; try 0.85)",
    )  # fmt: skip
    add_period(parser)
    add_filter(parser)
    add_json(parser)
    parser.set_defaults(run=run, options=DuplicatesOptions)


def run(options: DuplicatesOptions) -> int:
    """Group the turns and print the groups."""
    from evaltap.evaluator.curation.grouping import Likeness, health, turn_groups, window_turns
    from evaltap.evaluator.curation.recipe import Recipe

    for name, value in (("--radius", options.radius), ("--semantic", options.semantic)):
        if value is not None and value > 1:
            raise InputError(f"{name} {value:g}: expected a number from 0 to 1")
    scope = Recipe("duplicates", (), since=options.since, until=options.until)
    with options.chosen.open([options.db]) as store, window_turns(store, scope) as window:
        turns = window.all()
    with progress("texts compared") as compared:
        groups = turn_groups(turns, Likeness(options.radius, options.semantic), compared)
    figures = health(groups)
    if options.json:
        data = {"groups": [group.data() for group in groups], "health": figures}
        print(json.dumps(data, ensure_ascii=False))
    else:
        _print(groups, figures)
    return 0


def _print(groups: "Sequence[TurnGroup]", figures: dict[str, Any]) -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.analysis.filters.listing import SHORT, shortened
    from evaltap.evaluator.cases.text import one_line
    from evaltap.evaluator.reports.console import console
    from evaltap.evaluator.reports.safe_text import visible

    rows = []
    for group in groups[:SHOWN]:
        medoid = group.medoid
        outcome = medoid.block.outcome.replace("unknown", "unscored")
        case = shortened(visible(medoid.key.eval_id), SHORT)
        words = one_line(medoid.text, 200)
        rows.append((f"{len(group.members):,}", words, medoid.block.tool_path, outcome, case))
    out = console()
    width = out.width if out.is_terminal else NARROW
    table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
    cells = zip(COLUMNS, *rows, strict=True)
    widths = {name: max(map(len, (name, *column))) for name, *column in cells}
    widths["tools"] = min(widths["tools"], TOOLS)
    rest = width - sum(widths.values()) - 2 * len(widths) + widths["first words"]
    widths["first words"] = max(len("first words"), min(widths["first words"], rest))
    for name, wide in widths.items():
        side: Literal["left", "right"] = "right" if name == "turns" else "left"
        table.add_column(name, no_wrap=True, width=wide, justify=side)
    for row in rows:
        table.add_row(*(Text(cell, overflow="ellipsis") for cell in row))
    if rows:
        out.print(table, width=width)
    if len(groups) > SHOWN:
        print(f"... {len(groups) - SHOWN:,} more groups (--json lists all)")
    print(
        f"{counted(figures['turns'], 'turn')} in {counted(figures['groups'], 'group')},"
        f" {figures['share_in_groups']:.0%} of the turns in groups of several"
    )
    if figures["doubtful"]:
        print(f"{counted(figures['doubtful'], 'turn')} only just similar enough; see --radius")
    for warning in figures["warnings"]:
        print(f"warning: {warning}")
