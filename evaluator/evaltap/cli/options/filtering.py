"""`FILTER`, `--filter` and `--where`: choose the cases that a command uses."""

import argparse
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from evaltap.cli.options.common import open_stores
from evaltap.schemas.errors import InputError

if TYPE_CHECKING:
    from evaltap.evaluator.analysis.filters.choice import Choice
    from evaltap.evaluator.cases.identity import CaseKey
    from evaltap.evaluator.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class FilterOptions:
    """A filter as the user wrote it, and an SQL condition."""

    filter: tuple[str, ...]
    where: str

    def choice(self) -> "Choice":
        """Parse the filter; raise InputError if it is invalid."""
        from evaltap.evaluator.analysis.filters.choice import Choice
        from evaltap.evaluator.analysis.filters.language import parse_filter

        return Choice(parse_filter(" ".join(self.filter)), self.where)

    def and_filter(self, filter_: str) -> "FilterOptions":
        """Return the options with additional filter terms."""
        return FilterOptions((*self.filter, filter_), self.where)

    @contextmanager
    def open(
        self, paths: Sequence[Path], keys: "Sequence[CaseKey] | None" = None
    ) -> "Iterator[StoreReader]":
        """Open the files, read as one, with the chosen cases only; `keys` replaces the choice."""
        from evaltap.evaluator.analysis.filters.restricted import restricted
        from evaltap.evaluator.analysis.summaries.summaries import catch_up

        choice = self.choice()
        with open_stores(paths) as store:
            if not choice:
                yield store
                return
            catch_up(store)
            with restricted(store, choice, keys, paths):
                yield store

    def keys(self, store: "StoreReader") -> "list[CaseKey] | None":
        """Return the chosen cases, None without a filter; raise InputError when no case matches."""
        from evaltap.evaluator.analysis.filters.choice import chosen_keys
        from evaltap.evaluator.analysis.filters.restricted import no_case
        from evaltap.evaluator.analysis.summaries.summaries import catch_up

        choice = self.choice()
        if not choice:
            return None
        catch_up(store)
        found = chosen_keys(store, choice)
        if not found:
            raise InputError(no_case(choice, [store.path], store))
        return found


def add_filter(parser: argparse.ArgumentParser, *, positional: bool = False) -> None:
    """Add the filter, as an argument or an option, and `--where`."""
    about = (
        "choose cases by words and field:value terms, e.g. 'tool:refund status:failed -feedback:up"
        " since:7d' (`evaltap cases --help` lists the fields)"
    )
    if positional:
        parser.add_argument("filter", nargs="*", default=[], metavar="FILTER", help=about)
    else:
        parser.add_argument("--filter", action="append", default=[], metavar="FILTER", help=about)
    parser.add_argument(
        "--where",
        default="",
        metavar="SQL",
        help="choose cases with a turn that meets this SQL condition on the view curation_turns",
    )
