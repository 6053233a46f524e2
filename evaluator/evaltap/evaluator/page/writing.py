"""Write the few rows that people create, through a cursor next to the transactions of the store's thread."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import duckdb

from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.queries import Parameters, Rows, StoreWriter


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

    def close(self) -> None:
        """Do nothing: the cursor belongs to its owner."""
