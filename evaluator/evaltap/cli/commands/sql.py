"""`evaltap sql`: query the store with one statement, even while a consumer writes to it."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence

from evaltap.cli.options.inspect import SqlOptions
from evaltap.evaluator.reports.rows import plain, print_rows
from evaltap.evaluator.store.queries import Rows
from evaltap.evaluator.store.remote.client import selected
from evaltap.schemas.errors import InputError


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
            out.writerows([plain(value) for value in row] for row in chunk)
    elif options.json:
        rows = [dict(zip(names, row, strict=True)) for chunk in chunks for row in chunk]
        print(json.dumps(rows, ensure_ascii=False, default=str))
    else:
        print_rows(names, chunks, options.limit)
