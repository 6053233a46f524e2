"""Open the stores that a command reads or writes, and choose the cases in them by a filter."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from evaltap.cli.options.shared import FilterOptions
from evaltap.evaluator.analysis.filters.choice import Choice, chosen_keys
from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.analysis.filters.restricted import no_case, restricted
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.remote.client import open_to_read
from evaltap.evaluator.store.shards import ShardedStore
from evaltap.schemas.errors import InputError


def open_stores(paths: Sequence[Path]) -> StoreReader:
    """Open one DuckDB file, or several as one, for reading."""
    return open_to_read(paths[0]) if len(paths) == 1 else ShardedStore(paths)


def choice_of(options: FilterOptions, *more: str) -> Choice:
    """Parse the filter, with additional terms; raise InputError if it is invalid."""
    return Choice(parse_filter(" ".join((*options.filter, *more))), options.where)


@contextmanager
def open_chosen(
    paths: Sequence[Path], choice: Choice, keys: Sequence[CaseKey] | None = None
) -> Iterator[StoreReader]:
    """Open the files, read as one, with the chosen cases only; `keys` replaces the choice."""
    with open_stores(paths) as store:
        if not choice:
            yield store
            return
        catch_up(store)
        with restricted(store, choice, keys, paths):
            yield store


def keys_of(store: StoreReader, choice: Choice) -> list[CaseKey] | None:
    """Return the chosen cases, None without a filter; raise InputError when no case matches."""
    if not choice:
        return None
    catch_up(store)
    if not (found := chosen_keys(store, choice)):
        raise InputError(no_case(choice, [store.path], store))
    return found
