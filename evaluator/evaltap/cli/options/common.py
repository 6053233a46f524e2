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
    """Print the outcome of a command: as JSON on stdout for scripts, or as text on stderr."""
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
        help="only turns that started at this time or later: RFC 3339 (2026-11-21T12:00:00Z), or an age"
        " such as 24h or 7d",
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
        help="number of cases to judge concurrently (default: 8)",
    )


def add_columns(parser: argparse.ArgumentParser) -> None:
    """Add `--map`, for data sets."""
    parser.add_argument(
        "--map",
        action="append",
        default=[],
        metavar="FIELD=COLUMN",
        help="for data sets: the column for a field of the case (default: recognised by the usual column"
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
    """Open one DuckDB file, or several as one, for reading."""
    from evaltap.evaluator.store.remote.client import open_to_read
    from evaltap.evaluator.store.shards import ShardedStore

    return open_to_read(paths[0]) if len(paths) == 1 else ShardedStore(paths)


def open_store(path: Path | None, *, create: bool = True) -> "Store":
    """Open the DuckDB file at `path`; without a path, open a file that is deleted when it is closed."""
    from evaltap.evaluator.store.database import Store, TemporaryStore

    if path is not None:
        return Store(path, create=create)
    try:
        return TemporaryStore()
    except OSError:  # no folder for temporary files
        return Store(":memory:")


class MinuteLine:
    """Writes a line about the progress of long work once a minute."""

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

    def due(self, line: Callable[[], str]) -> None:
        """Write the line that `line` returns if a minute has passed; may be called any number of times."""
        now = self._clock()
        if now >= self._next:
            self._next = now + self._seconds
            self._write(line())


@contextmanager
def progress(what: str, *, logged: bool = True) -> Iterator[Callable[[int], None]]:
    """Show a running count: continuously on a terminal; otherwise, if `logged`, a line per minute."""
    if not sys.stderr.isatty():
        line = MinuteLine()

        def report(count: int) -> None:
            line.due(lambda: f"evaltap: {count:,} {what}")

        yield report if logged else lambda _: None
        return
    from evaltap.evaluator.reports.console import visible_console

    with visible_console(sys.stderr).status(f"0 {what}") as status:
        yield lambda count: status.update(f"{count:,} {what}")
