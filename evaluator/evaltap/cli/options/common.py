"""Options that most commands have."""

import argparse
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add `--map`, for data sets."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="data sets: which column holds a part of a case (default: by the names that tools use)",
    )


def add_database(parser: argparse.ArgumentParser) -> None:
    """Add the DuckDB file to read."""
    parser.add_argument("db", type=Path, metavar="X.duckdb", help="a DuckDB file of evaltap")


def add_databases(parser: argparse.ArgumentParser) -> None:
    """Add the DuckDB files to read as one."""
    parser.add_argument(
        "db",
        nargs="+",
        type=Path,
        metavar="X.duckdb",
        help="a DuckDB file of evaltap, or the files of consumers with --partitions, read as one",
    )


def open_stores(paths: Sequence[Path]) -> "Store":
    """Open a DuckDB file, or several that are read as one."""
    from evaltap.evaluator.store.shards import ShardedStore

    return open_store(paths[0], create=False) if len(paths) == 1 else ShardedStore(paths)


def open_store(path: Path | None, *, create: bool = True) -> "Store":
    """Open the DuckDB file, or one that is deleted when it is closed when there is no path."""
    from evaltap.evaluator.store.database import Store, TemporaryStore

    if path is not None:
        return Store(path, create=create)
    try:
        return TemporaryStore()
    except OSError:  # no place for temporary files
        return Store(":memory:")


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """Show a running count on a terminal; stay silent in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from evaltap.evaluator.reports.console import visible_console

    with visible_console(sys.stderr).status(f"0 {what}") as status:
        yield lambda count: status.update(f"{count:,} {what}")
