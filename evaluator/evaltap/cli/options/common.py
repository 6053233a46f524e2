"""Options that most commands have."""

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.parsing import moment, positive
from evaltap.cli.settings import STORE, of_settings

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store
    from evaltap.evaluator.store.queries import StoreReader


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def print_outcome(data: Mapping[str, object], text: str, *, as_json: bool) -> None:
    """Print what a command has done: as JSON for scripts, or in words on stderr."""
    if as_json:
        print(json.dumps(data, ensure_ascii=False))
    else:
        print(text, file=sys.stderr)


def add_period(parser: argparse.ArgumentParser) -> None:
    """Add `--since` and `--until`."""
    parser.add_argument(
        "--since",
        type=moment,
        metavar="TIME",
        help="only turns that started at this time or later: RFC 3339 (2026-11-21T12:00:00Z), or 24h or 7d"
        " for a time ago",
    )
    parser.add_argument(
        "--until",
        type=moment,
        metavar="TIME",
        help="only turns that started before this time",
    )


def add_concurrency(parser: argparse.ArgumentParser) -> None:
    """Add `--concurrency`."""
    parser.add_argument(
        "--concurrency",
        type=positive,
        default=8,
        metavar="N",
        help="how many cases to judge at a time (default: 8)",
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add `--map`, for data sets."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="for data sets: the column that holds a part of a case (default: found by the usual column"
        " names)",
    )


def add_database(parser: argparse.ArgumentParser) -> None:
    """Add the DuckDB file to read."""
    of_settings(
        parser.add_argument(
            "db",
            type=Path,
            metavar="X.duckdb",
            help="the store to read (default: the one in evaltap.toml, or ./cases.duckdb)",
        ),
        STORE,
    )


def add_databases(parser: argparse.ArgumentParser) -> None:
    """Add the DuckDB files to read as one."""
    of_settings(
        parser.add_argument(
            "db",
            nargs="+",
            type=Path,
            metavar="X.duckdb",
            help="the store to read; several files, one for each consumer with --partitions, are read as"
            " one (default: the one in evaltap.toml, or ./cases.duckdb)",
        ),
        STORE,
    )


def open_stores(paths: Sequence[Path]) -> "StoreReader":
    """Open a DuckDB file for reading, or several that are read as one."""
    from evaltap.evaluator.remote.client import open_to_read
    from evaltap.evaluator.store.shards import ShardedStore

    return open_to_read(paths[0]) if len(paths) == 1 else ShardedStore(paths)


def open_store(path: Path | None, *, create: bool = True) -> "Store":
    """Open the DuckDB file, or one that is deleted when it is closed when there is no path."""
    from evaltap.evaluator.store.database import Store, TemporaryStore

    if path is not None:
        return Store(path, create=create)
    try:
        return TemporaryStore()
    except OSError:  # no place for temporary files
        return Store(":memory:")


class MinuteLine:
    """Says once a minute how far long work is."""

    def __init__(
        self,
        write: Callable[[str], object] = lambda line: print(line, file=sys.stderr, flush=True),
        *,
        seconds: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._write = write
        self._seconds = seconds
        self._clock = clock
        self._next = clock() + seconds

    def due(self, say: Callable[[], str]) -> None:
        """Write what `say` returns when a minute is over; call it as often as you like."""
        now = self._clock()
        if now >= self._next:
            self._next = now + self._seconds
            self._write(say())


@contextmanager
def progress(what: str, *, logged: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a running count: all the time on a terminal, and if `logged` a line a minute in a log."""
    if not sys.stderr.isatty():
        line = MinuteLine()

        def say(count: int) -> None:
            line.due(lambda: f"evaltap: {count:,} {what}")

        yield say if logged else lambda _: None
        return
    from evaltap.evaluator.reports.console import visible_console

    with visible_console(sys.stderr).status(f"0 {what}") as status:
        yield lambda count: status.update(f"{count:,} {what}")
