"""What several commands share: opening the store, progress on a terminal, `--json`."""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from evaltap.evaluator.jobs import References
    from evaltap.evaluator.store import Store


def add_json(parser: argparse.ArgumentParser) -> None:
    """Add `--json`."""
    parser.add_argument("--json", action="store_true", help="print JSON for scripts")


def add_database(parser: argparse.ArgumentParser) -> None:
    """Add the DuckDB file to read."""
    parser.add_argument("db", type=Path, metavar="X.duckdb", help="a DuckDB file of evaltap")


def add_references(parser: argparse.ArgumentParser) -> None:
    """Add `--references`."""
    parser.add_argument(
        "--references",
        type=Path,
        metavar="R.evalset.json",
        help="expected turns for landed cases, joined by eval id",
    )


def references(path: Path | None) -> "References | None":
    """Read the references, None when none were given."""
    if path is None:
        return None
    from evaltap.evaluator.jobs import References

    return References(path)


def positive(text: str) -> int:
    """Parse a whole number of 1 or more."""
    try:
        number = int(text)
    except ValueError:
        number = 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"found {text!r}; expected a whole number, 1 or more")
    return number


def open_store(path: Path | None, *, create: bool = True) -> "Store":
    """Open the DuckDB file, or one in memory when there is no path."""
    from evaltap.evaluator.store import Store

    return Store(":memory:" if path is None else path, create=create or path is None)


@contextmanager
def progress(what: str) -> Iterator[Callable[[int], None]]:
    """Show a running count on a terminal; stay silent in a pipe."""
    if not sys.stderr.isatty():
        yield lambda _: None
        return
    from rich.console import Console

    with Console(stderr=True).status(f"0 {what}") as status:
        yield lambda count: status.update(f"{count:,} {what}")
