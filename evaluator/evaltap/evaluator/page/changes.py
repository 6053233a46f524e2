"""People's actions on the page in addition to reviews, as append-only rows."""

import hashlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import duckdb
import orjson

from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.page.security.access import Person
from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.database import utc_now
from evaltap.evaluator.store.queries import Parameters, Rows, StoreReader, StoreWriter
from evaltap.schemas.data import Json


class CursorWriter(StoreWriter):
    """Reads and appends through a cursor; writes are visible immediately, in a transaction all at once."""

    def __init__(self, path: Path, cursor: duckdb.DuckDBPyConnection) -> None:
        super().__init__(path)
        self._cursor = cursor

    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[Rows]:
        """Yield the rows of a query in chunks; they are read completely, as another statement may follow."""
        rows = self.rows(query, parameters)
        return (rows[place : place + size] for place in range(0, len(rows), size))

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit the block's writes as a whole, or none of them."""
        self._cursor.begin()
        try:
            yield
        except BaseException:
            self._cursor.rollback()
            raise
        with translated(self.path):
            self._cursor.commit()

    @contextmanager
    def snapshot(self) -> Iterator[None]:
        """Read the state at the beginning of the block; temporary tables created in the block are dropped."""
        self._cursor.begin()
        try:
            yield
        finally:
            with translated(self.path):
                self._cursor.rollback()

    @contextmanager
    def _asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        with translated(self.path):
            yield self._cursor


@dataclass(frozen=True, slots=True)
class Change:
    action: str
    key: CaseKey | None = None
    """The case that was changed."""
    target: str = ""
    detail: Json = None
    undoes: str | None = None


def write(store: StoreWriter, who: Person, changes: Sequence[Change]) -> None:
    """Append actions of a person."""
    now = utc_now()
    rows: list[tuple[Any, ...]] = []
    for number, one in enumerate(changes):
        detail = None if one.detail is None else orjson.dumps(one.detail).decode()
        named = (who.name, one.action, *(one.key or ()), one.target, now.isoformat(), str(number))
        change_id = hashlib.sha256("\0".join(named).encode("utf-8", "surrogatepass")).hexdigest()
        case = one.key or (None, None, None)
        done = (who.name, who.role, one.action, one.target, detail, one.undoes, now)
        rows.append((change_id[:16], *case, *done))
    if rows:
        with store.transaction():
            store.append("changes", rows)


PICKED: Final = """
SELECT app_name, eval_set_id, eval_id, changed_at FROM changes
WHERE who = $who AND action IN ('pick', 'drop')
QUALIFY row_number() OVER (PARTITION BY app_name, eval_set_id, eval_id ORDER BY changed_at DESC) = 1
  AND action = 'pick'
"""


def picked(store: StoreReader, who: Person) -> dict[CaseKey, datetime]:
    """Return the cases in a person's basket with the times of their addition, the last first."""
    rows = store.rows(f"{PICKED} ORDER BY changed_at DESC, eval_id", {"who": who.name})
    return {(app, name, eval_id): at for app, name, eval_id, at in rows}
