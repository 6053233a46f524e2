"""`Store`: a DuckDB file of evaltap, read beside whatever writes to it."""

from pathlib import Path
from typing import Any, Final

from evaltap.api.run import Run, run_of
from evaltap.api.table import Table, table_of
from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.language import parse_filter
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.analysis.summaries.summaries import catch_up
from evaltap.evaluator.reports.case import find_case, read_case
from evaltap.evaluator.reports.scope import check_run
from evaltap.evaluator.store.remote.client import open_to_read, selected
from evaltap.schemas.errors import InputError

_ALL: Final = 2**31
_CASES: Final = {
    "app": "VARCHAR",
    "eval_set_id": "VARCHAR",
    "eval_id": "VARCHAR",
    "started_at": "TIMESTAMP",
    "opening": "VARCHAR",
    "tools": "VARCHAR[]",
    "outcome": "VARCHAR",
    "failed": "VARCHAR[]",
    "verdicts": "STRUCT(metric VARCHAR, status VARCHAR, score DOUBLE)[]",
    "passed": "INTEGER",
    "not_evaluated": "INTEGER",
    "feedback": "VARCHAR",
    "version": "VARCHAR",
    "turns": "INTEGER",
    "cost_usd": "DOUBLE",
    "latency_ms": "DOUBLE",
}
"""The columns of `Store.cases`, which are those of `evaltap cases --json`."""


class Store:
    """Reads a store, also while `evaltap consume` writes to it.

    The file is only open during a call, so that a notebook keeps no other process from it.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)

    @classmethod
    def open(cls, path: str | Path) -> "Store":
        """Return a store after a look into it; raise StoreError if there is none."""
        with open_to_read(Path(path)):
            return cls(path)

    def cases(self, filter: str = "", *, where: str = "", limit: int | None = None) -> Table:
        """Return the cases that match a filter and an SQL condition, as `evaltap cases` lists them.

        Where traffic has landed, too, runs on cases are left out unless the filter names them.
        Raises InputError for an invalid filter, condition or limit.
        """
        if limit is not None and limit < 0:
            raise InputError(f"limit: found {limit}; expected 0 or more")
        choice = Choice(parse_filter(filter), where, traffic=True)
        with open_to_read(self.path) as store:
            catch_up(store)
            found = list_page(store, choice, _ALL if limit is None else limit)
        records = [{**one.data(), "started_at": one.started_at} for one in found.cases]
        return Table(_CASES, [tuple(one[name] for name in _CASES) for one in records])

    def case(self, name: str, *, app: str | None = None) -> dict[str, Any]:
        """Return a case with its turns, feedback and scores, as `evaltap show --json` prints it.

        Raises InputError if no case has the name, or several have.
        """
        with open_to_read(self.path) as store:
            return read_case(store, find_case(store, name, app))

    def sql(self, statement: str, *, seconds: float = 60) -> Table:
        """Return the rows of one statement that only reads; raise InputError for any other."""
        with selected(self.path, statement, seconds, typed=True) as found:
            return table_of(
                found.names, found.kinds, [row for rows in found.chunks for row in rows]
            )

    def run(self, run_id: str) -> Run:
        """Return the scores of a run that `evaltap runs` lists; raise InputError if there is none."""
        with open_to_read(self.path) as store:
            check_run(store, run_id)
            return run_of(store, run_id, run_id=run_id)
