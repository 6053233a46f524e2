"""`evaltap sql`: query the store with one statement, even while a consumer writes to it."""

import argparse
import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.commands.cases import NARROW
from evaltap.cli.options.common import add_json
from evaltap.cli.parsing import positive
from evaltap.cli.settings import STORE, of_settings
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.store.queries import Rows

_ROWS_AT_ONCE = 5_000


@dataclass(frozen=True, slots=True)
class SqlOptions:
    """The statement, and how to print its rows."""

    statement: str
    db: Path
    limit: int
    seconds: int
    json: bool
    csv: bool


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "examples:\n"
        "  evaltap sql 'FROM v_pass_rate'\n"
        "  evaltap sql 'SELECT tool_name, calls, errors FROM v_tools' --csv\n"
        "  evaltap sql \"FROM latest_turns WHERE status = 'error'\" --json\n\n"
        "Tables and views: docs/reference/tables.md. The statement can only read, and sees what was"
        " committed when it started. It does not interrupt a running `evaltap consume`.\n\n"
        "exit code: 0 printed, even if there are no rows; 2 bad input"
    )
    parser.add_argument("statement", metavar="SQL", help="one statement in DuckDB's SQL dialect")
    of_settings(
        parser.add_argument(
            "--db",
            type=Path,
            required=True,
            metavar="X.duckdb",
            help="the store to read (default: the one in evaltap.toml, or ./cases.duckdb)",
        ),
        STORE,
        reads=True,
    )
    parser.add_argument(
        "--limit", type=positive, default=1_000, metavar="N",
        help="print at most N rows; --json and --csv print all (default: 1000)",
    )  # fmt: skip
    parser.add_argument(
        "--seconds", type=positive, default=60, metavar="N",
        help="time limit for the statement (default: 60)",
    )  # fmt: skip
    parser.add_argument("--csv", action="store_true", help="print CSV with a header line")
    add_json(parser)
    parser.set_defaults(run=run, options=SqlOptions)


def run(options: SqlOptions) -> int:
    """Run the statement and print its rows."""
    import duckdb

    from evaltap.evaluator.store.remote.client import one_statement

    if options.json and options.csv:
        raise InputError("--json, --csv: give only one of them")
    with one_statement(options.db, options.seconds) as reader:
        try:
            _check_single(options.statement)
            names = reader.begin(options.statement)
            chunks = iter(lambda: reader.fetch(_ROWS_AT_ONCE), [])
            _print(options, names, chunks)
        except duckdb.Error as error:
            if isinstance(error, duckdb.InterruptException):
                raise  # the time limit was exceeded
            first, _, _ = str(error).partition("\n\n")  # the rest repeats the statement
            raise InputError(" ".join(first.split())) from None
    return 0


def _check_single(statement: str) -> None:
    import duckdb

    count = len(duckdb.extract_statements(statement))
    if count != 1:
        raise InputError(f"found {count} statements; expected one")


def _print(options: SqlOptions, names: Sequence[str], chunks: "Iterator[Rows]") -> None:
    if options.csv:
        out = csv.writer(sys.stdout, lineterminator="\n")
        out.writerow(names)
        for chunk in chunks:
            out.writerows([_plain(value) for value in row] for row in chunk)
    elif options.json:
        rows = [dict(zip(names, row, strict=True)) for chunk in chunks for row in chunk]
        print(json.dumps(rows, ensure_ascii=False, default=str))
    else:
        _print_table(options, names, chunks)


def _print_table(options: SqlOptions, names: Sequence[str], chunks: "Iterator[Rows]") -> None:
    from rich import box
    from rich.table import Table
    from rich.text import Text

    from evaltap.evaluator.reports.console import console
    from evaltap.evaluator.reports.safe_text import visible
    from evaltap.schemas.text import counted

    rows: Rows = []
    for chunk in chunks:
        rows += chunk
        if len(rows) > options.limit:
            break
    shown = rows[: options.limit]
    out = console()
    width = out.width if out.is_terminal else NARROW
    cells = [[visible(_text(value)) for value in values] for values in shown]
    if _needed(names, cells) > width:
        for line in _upright(names, cells):
            out.print(Text(line), soft_wrap=True)
    else:
        table = Table(box=box.SIMPLE, pad_edge=False, padding=(0, 1, 0, 0))
        for place, name in enumerate(names):
            numbers = all(isinstance(row[place], int | float | None) for row in shown)
            table.add_column(visible(name), justify="right" if numbers else "left")
        for row in cells:
            table.add_row(*map(Text, row))
        out.print(table, width=width)
    more = " and more (--limit, --csv)" if len(rows) > len(shown) else ""
    out.print(f"{counted(len(shown), 'row')}{more}", soft_wrap=True)


def _needed(names: Sequence[str], cells: Sequence[Sequence[str]]) -> int:
    """Return the width that a table needs without wrapping cells."""
    return sum(max(map(len, column)) + 2 for column in zip(names, *cells, strict=True))


def _upright(names: Sequence[str], cells: Sequence[Sequence[str]]) -> "Iterator[str]":
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
