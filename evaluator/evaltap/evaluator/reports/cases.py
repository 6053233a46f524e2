"""The landed cases as a table."""

from collections.abc import Sequence

from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from evaltap.evaluator.analysis.filters.listing import SHORT, ListedCase, ListPage, shortened
from evaltap.evaluator.cases.text import one_line
from evaltap.evaluator.reports.console import plain_table
from evaltap.evaluator.reports.safe_text import visible
from evaltap.schemas.text import counted

NARROW = 80
"""Width of the table without a terminal."""

FIRST_WORDS, TOOLS = "first words", "tools"
_THUMBS = {"up": "+", "down": "-", "mixed": "+-"}


def print_cases(found: ListPage, out: Console) -> None:
    """Print the cases that were found, and how many."""
    if not found.cases:
        return
    width = out.width if out.is_terminal else NARROW
    columns = _columns(found.cases, max(SHORT, width - NARROW))
    table = plain_table(1)
    for name, wide in _widths(columns, width).items():
        table.add_column(name, no_wrap=True, width=wide)
    for cells in zip(*columns.values(), strict=True):
        table.add_row(*(Text(cell, overflow="ellipsis") for cell in cells))
    out.print(table, width=width)
    listed = len(found.cases)
    more = f" of {found.matched:,} (--limit lists more)" if listed < found.matched else ""
    out.print(f"{counted(listed, 'case')}{more}", soft_wrap=True)


def _columns(cases: Sequence[ListedCase], id_width: int) -> dict[str, list[str]]:
    """Return the cells by column, without empty columns."""
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
    widths = {name: max(map(cell_len, (name, *cells))) for name, cells in columns.items()}
    fixed = sum(wide for name, wide in widths.items() if name not in (FIRST_WORDS, TOOLS))
    left = width - 2 * len(widths) - fixed
    tools, words = widths.get(TOOLS, 0), widths[FIRST_WORDS]
    if tools + words > left:
        tools = min(tools, max(left // 2, left - words))
        words = left - tools
    return widths | {FIRST_WORDS: words} | ({TOOLS: tools} if TOOLS in widths else {})
