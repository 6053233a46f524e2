"""The SQL statements that a page ran, for display and for copying into `duckdb`."""

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import TypeVar

from msgspec import Struct

from evaltap.evaluator.store.queries import Parameters, Record, Row, Rows, StoreReader, sql_text

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Statement:
    """A statement with its values as literals."""

    sql: str
    milliseconds: float


class RecordedReader(StoreReader):
    """Reads through another reader and records the statements."""

    def __init__(self, reader: StoreReader) -> None:
        self.path = reader.path
        self._reader = reader
        self.statements: list[Statement] = []

    def rows(self, query: str, parameters: Parameters = None) -> Rows:
        return self._kept(query, parameters, self._reader.rows)

    def records(self, query: str, parameters: Parameters = None) -> list[Record]:
        """Return all rows of a query as dicts by column name."""
        return self._kept(query, parameters, self._reader.records)

    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[Rows]:
        self.statements.append(Statement(written_out(query, parameters), 0.0))
        return self._reader.stream(query, parameters, size=size)

    def _execute(self, statement: str, parameters: Parameters = None) -> None:
        self._kept(statement, parameters, self._reader._execute)

    def _append(self, table: str, rows: Sequence[Row] | Sequence[Struct]) -> None:
        self._reader._append(table, rows)

    def unlimited_memory(self) -> AbstractContextManager[None]:
        """Allow the block to read rows that may be large."""
        return self._reader.unlimited_memory()

    def _kept(
        self, query: str, parameters: Parameters, ask: Callable[[str, Parameters], Found]
    ) -> Found:
        started = time.perf_counter()
        found = ask(query, parameters)
        taken = (time.perf_counter() - started) * 1e3
        self.statements.append(Statement(written_out(query, parameters), taken))
        return found


def written_out(query: str, parameters: Parameters) -> str:
    """Return a statement with its values as literals, for display; the page itself binds them."""
    text = re.sub(r"\n\s*\n", "\n", query.strip())
    if isinstance(parameters, Mapping):
        named = re.compile(r"\$([A-Za-z_]\w*)")
        return named.sub(
            lambda found: _literal(parameters[found[1]]) if found[1] in parameters else found[0],
            text,
        )
    values = iter(parameters or ())
    return re.sub(r"\?", lambda found: _literal(next(values, "?")), text) if parameters else text


def _literal(value: object) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool | int | float):
        return str(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(_literal, value))}]"
    if isinstance(value, datetime | date):
        return f"TIMESTAMP '{value}'"
    if isinstance(value, timedelta):
        return f"INTERVAL '{value}'"
    return sql_text(value)
