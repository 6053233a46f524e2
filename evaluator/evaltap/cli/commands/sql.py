"""`evaltap sql`: query the store with one statement, even while a consumer writes to it."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import chain, count

from rich.cells import cell_len
from rich.text import Text

from evaltap.cli.messages import print_json
from evaltap.cli.options.inspect import SqlOptions
from evaltap.evaluator.reports.cases import NARROW
from evaltap.evaluator.reports.console import console, plain_table
from evaltap.evaluator.reports.safe_text import visible
from evaltap.evaluator.store.queries import Rows
from evaltap.evaluator.store.remote.client import selected
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted


def run(options: SqlOptions) -> int:
    """Run the statement and print its rows."""
    if options.json and options.csv:
        raise InputError("--json, --csv: give only one of them")
    db = options.file or options.db
    if options.file is None and options.statement.endswith(".duckdb"):
        raise InputError(f"missing SQL; expected a statement after {options.statement}")
    if db is None:
        raise InputError("missing X.duckdb; name the store before the statement")
    with selected(db, options.statement, options.seconds) as found:
        _print(options, found.names, found.chunks)
    return 0


def _print(options: SqlOptions, names: Sequence[str], chunks: Iterator[Rows]) -> None:
    if options.csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(names)
        for chunk in chunks:
            out.writerows([_plain(value) for value in row] for row in chunk)
    elif options.json:
        keys = [*_distinct(names)]
        rows = [dict(zip(keys, row, strict=True)) for chunk in chunks for row in chunk]
        text = json.dumps(rows, ensure_ascii=False, default=str)
        print_json(json.loads(text, parse_constant=lambda _: None))  # JSON has no NaN or infinity
    else:
        _print_rows(names, chunks, options.limit)


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """Yield the names, with numbers after those that were there before: a, a_1."""
    taken: set[str] = set()
    for name in names:
        numbered = chain([name], (f"{name}_{number}" for number in count(1)))
        found = next(one for one in numbered if one not in taken)
        taken.add(found)
        yield found


def _print_rows(names: Sequence[str], chunks: Iterator[Rows], limit: int) -> None:
    rows: Rows = []
    for chunk in chunks:
        rows += chunk
        if len(rows) > limit:
            break
    shown = rows[:limit]
    out = console()
    width = out.width if out.is_terminal else NARROW
    cells = [[visible(_text(value)) for value in values] for values in shown]
    # Without wrapping cells.
    needed = sum(max(map(cell_len, column)) + 2 for column in zip(names, *cells, strict=True))
    if needed > width:
        for line in _upright(names, cells):
            out.print(Text(line), soft_wrap=True)
    else:
        table = plain_table(1)
        for place, name in enumerate(names):
            numbers = all(isinstance(row[place], int | float | None) for row in shown)
            table.add_column(visible(name), justify="right" if numbers else "left")
        for row in cells:
            table.add_row(*map(Text, row))
        out.print(table, width=width)
    more = " and more (--limit, --csv)" if len(rows) > len(shown) else ""
    out.print(f"{counted(len(shown), 'row')}{more}", soft_wrap=True)


def _upright(names: Sequence[str], cells: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the rows with one line for each value, for rows too wide for a table."""
    width = max(map(len, names))
    for row in cells:
        yield from (f"{name:<{width}}  {value}" for name, value in zip(names, row, strict=True))
        yield ""


def _text(value: object) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(_plain(value))


def _plain(value: object) -> object:
    if value is None:
        return ""
    if isinstance(value, list | dict | tuple):
        return json.dumps(value, ensure_ascii=False, default=str)
    return value
