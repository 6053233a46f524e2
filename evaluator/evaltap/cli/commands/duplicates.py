"""`evaltap set duplicates`: group turns that are near-duplicates."""

import json
from collections.abc import Sequence
from typing import Any, Literal

from rich.cells import cell_len
from rich.text import Text

from evaltap.cli.messages import say
from evaltap.cli.options.set import DuplicatesOptions
from evaltap.cli.progress import progress
from evaltap.cli.stores import choice_of, open_chosen
from evaltap.evaluator.analysis.filters.listing import SHORT, shortened
from evaltap.evaluator.analysis.traffic import told_of_runs
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.curation.grouping import (
    Likeness,
    TurnGroup,
    health,
    turn_groups,
    window_turns,
)
from evaltap.evaluator.curation.recipe import Recipe
from evaltap.evaluator.reports.cases import NARROW
from evaltap.evaluator.reports.console import console, plain_table
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

SHOWN = 20
COLUMNS = ("turns", "first words", "tools", "outcome", "case")
TOOLS = 18


def run(options: DuplicatesOptions) -> int:
    """Group the turns and print the groups."""
    for name, value in (("--radius", options.radius), ("--semantic", options.semantic)):
        if value is not None and value > 1:
            raise InputError(f"{name} {value:g}: expected a number from 0 to 1")
    scope = Recipe("duplicates", (), since=options.period.since, until=options.period.until)
    choice = choice_of(options.chosen)
    with (
        open_chosen([options.db], choice) as store,
        window_turns(store, scope) as window,
        window.texts() as texts,
    ):
        with progress("texts compared") as compared:
            groups = turn_groups(texts.turns, Likeness(options.radius, options.semantic), compared)
        members = texts.members(groups) if options.json else []
        if apart := told_of_runs(store):
            say("set duplicates", apart)
    if options.json:
        _print_json(groups, members)
    else:
        _print(groups, health(groups))
    return 0


def _print_json(groups: Sequence[TurnGroup], members: Sequence[Sequence[str]]) -> None:
    """Print one document, group by group, since the whole may be large."""
    joint = '{"groups": ['
    for group, names in zip(groups, members, strict=True):
        print(joint, json.dumps(group.data(names), ensure_ascii=False), sep="", end="")
        joint = ", "
    if not groups:
        print(joint, end="")
    print("], ", f'"health": {json.dumps(health(groups), ensure_ascii=False)}', "}", sep="")


def _print(groups: Sequence[TurnGroup], figures: dict[str, Any]) -> None:
    rows = []
    for group in groups[:SHOWN]:
        medoid = group.medoid
        outcome = medoid.block.outcome.replace("unknown", "unscored")
        case = shortened(visible(medoid.key.eval_id), SHORT)
        words = one_line(medoid.text, 200)
        rows.append((f"{group.turns:,}", words, medoid.block.tool_path, outcome, case))
    out = console()
    width = out.width if out.is_terminal else NARROW
    table = plain_table(1)
    cells = zip(COLUMNS, *rows, strict=True)
    widths = {name: max(map(cell_len, (name, *column))) for name, *column in cells}
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
