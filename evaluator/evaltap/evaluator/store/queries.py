"""Query a store through `StoreReader`, no matter which process holds the file.

The store itself, its cursors, and connections to the process that holds it are all readers.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext, suppress
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeAlias, TypeVar

import duckdb
from msgspec import Raw, Struct
from msgspec.structs import astuple

from evaltap.evaluator.store.arrow import ArrowTable, ColumnKind, ColumnKinds, Columns, to_columns
from evaltap.evaluator.store.errors import NoMemoryError
from evaltap.schemas.errors import EvaltapError

Parameters: TypeAlias = Mapping[str, object] | Sequence[object] | None
"""What a statement binds: by name, or by place."""
Row: TypeAlias = Sequence[Any]  # Any: of the type of its column
Rows: TypeAlias = list[tuple[Any, ...]]  # as above
Record: TypeAlias = dict[str, Any]  # as above
"""A row by the names of its columns."""
Found = TypeVar("Found")
Appendable: TypeAlias = Sequence[Row] | Sequence[Struct] | Columns

_KINDS: Mapping[str, ColumnKind] = {
    "VARCHAR": "text",
    "JSON": "text",
    "INTEGER": "whole",
    "BIGINT": "whole",
    "DOUBLE": "real",
    "TIMESTAMP": "time",
    "VARCHAR[]": "texts",
}

_SCRATCH: Final = "scratch_"


def sql_text(text: object) -> str:
    """Return a text as SQL writes it."""
    return "'" + str(text).replace("'", "''") + "'"


def newest_of(table: str, key: str, order: str) -> str:
    """Return a query for the newest row of each key of a whole table, where few keys have several rows.

    Sorting all rows by their keys takes several times as long.  Only those whose keys share a hash are
    compared, which may be too many, never too few.  For a few keys, the views `latest_*` are quicker.
    """
    digest = f"hash({key})"
    return f"""(
  WITH several AS (SELECT {digest} AS of_key FROM {table} GROUP BY ALL HAVING count(*) > 1)
  FROM {table} ANTI JOIN several ON {digest} = of_key
  UNION ALL (
    FROM {table} SEMI JOIN several ON {digest} = of_key
    QUALIFY row_number() OVER (PARTITION BY {key} ORDER BY {order}) = 1
  )
)"""


@dataclass(frozen=True, slots=True)
class Scratch:
    """A table of one reader, which exists within a block, under a name that only the holder of this knows."""

    name: str

    def __str__(self) -> str:
        return self.name


class StoreReader(ABC):
    """Reads a store from one thread.  What it computes on the way it hands on as `Scratch` tables.

    Every method raises StorageError if disk or memory is the cause, and duckdb.Error for an invalid
    statement.
    """

    path: Path
    lands: bool = False
    """Whether another process holds the file and lands turns in it."""
    _temporaries: int = 0
    """The number of tables and views that only this reader sees now."""
    _scratch: frozenset[int] = frozenset()
    """The numbers of the scratch tables among them."""

    @abstractmethod
    def rows(self, query: str, parameters: Parameters = None) -> Rows:
        """Return all rows of a query."""

    def large_rows(self, query: str, parameters: Parameters = None) -> Rows:
        """Return rows as `rows` does, but lift the memory limit if they do not fit.

        DuckDB reads 2,048 values at a time, even if fewer are needed and however large they are.
        """
        return self.with_memory(lambda: self.rows(query, parameters))

    def with_memory(self, ask: Callable[[], Found]) -> Found:
        """Return what `ask` returns, which may read the store; lift the memory limit if that is too low."""
        try:
            return ask()
        except NoMemoryError:
            with self.unlimited_memory():
                return ask()

    def column(self, query: str, parameters: Parameters = None) -> list[str]:
        """Return the first column of a query, which holds texts."""
        return [row[0] for row in self.rows(query, parameters)]

    @abstractmethod
    def records(self, query: str, parameters: Parameters = None) -> list[Record]:
        """Return all rows of a query as dicts by column name."""

    @abstractmethod
    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[Rows]:
        """Yield the rows of a query in chunks, from a snapshot at the time of the call."""

    @contextmanager
    def scratch(
        self, query: str, parameters: Parameters = None, *, rows: Sequence[Row] = ()
    ) -> Iterator[Scratch]:
        """Yield a table with the rows of a query, and further rows with the same columns."""
        # Names recur, so that statements do: some readers check each new one.
        number = next(one for one in count() if one not in self._scratch)
        self._scratch = self._scratch | {number}
        name = f"{_SCRATCH}{number}"
        try:
            with self._temporary(name, f"TABLE {name} AS {query}", parameters):
                if rows:
                    self._append(name, rows)
                yield Scratch(name)
        finally:
            self._scratch = self._scratch - {number}

    @contextmanager
    def seeing(
        self, rows: Mapping[str, str], parameters: Parameters = None, *, copied: bool = False
    ) -> Iterator[None]:
        """Let the block read other rows under the names of tables, also in the views of the file.

        `rows` are queries by table; they find the whole table in the database `NAME`.
        """
        with ExitStack() as stack:
            for table, query in rows.items():
                kind = "TABLE" if copied else "VIEW"
                stack.enter_context(
                    self._temporary(table, f"{kind} {table} AS {query}", parameters, kind)
                )
            yield

    @contextmanager
    def _temporary(
        self, name: str, made: str, parameters: Parameters, kind: str = "TABLE"
    ) -> Iterator[None]:
        self._execute(f"CREATE TEMP {made}", parameters)
        self._temporaries += 1
        try:
            yield
        except BaseException:
            # A failed statement may have ended the transaction, and with it the table.
            with suppress(EvaltapError, duckdb.Error):
                self._execute(f"DROP {kind} IF EXISTS temp.{name}")
            raise
        finally:
            self._temporaries -= 1
        self._execute(f"DROP {kind} IF EXISTS temp.{name}")

    @abstractmethod
    def _execute(self, statement: str, parameters: Parameters = None) -> None:
        """Run statements and discard their results."""

    @abstractmethod
    def _append(self, table: str, rows: Sequence[Row] | Sequence[Struct]) -> None:
        """Append rows with values in the order of the table's columns."""

    def close(self) -> None:  # noqa: B027  # what reads through a cursor has nothing to release
        """Release the store, if it is this reader's own."""

    def unlimited_memory(self) -> AbstractContextManager[None]:
        """Lift the memory limit in the block, to read rows that may be large."""
        return nullcontext()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ConnectedReader(StoreReader):
    """Reads a store through a connection to its database."""

    FEWEST_AS_COLUMNS: ClassVar = 200
    """Fewer rows go through the Appender, which needs no statement but holds the interpreter lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._table_kinds: dict[str, ColumnKinds | None] = {}

    @abstractmethod
    def _asking(self) -> AbstractContextManager[duckdb.DuckDBPyConnection]:
        """Return the connection, ready for a statement; errors in the block are converted."""

    def _asked(self, ask: Callable[[duckdb.DuckDBPyConnection], Found]) -> Found:
        """Return what a statement returns; a store that can mend a failure asks again."""
        with self._asking() as connection:
            return ask(connection)

    def rows(self, query: str, parameters: Parameters = None) -> Rows:
        """Return all rows of a query, including rows written by the open transaction."""
        return self._asked(lambda connection: connection.execute(query, parameters).fetchall())

    def records(self, query: str, parameters: Parameters = None) -> list[Record]:

        def asked(connection: duckdb.DuckDBPyConnection) -> list[Record]:
            result = connection.execute(query, parameters)
            names = [column[0] for column in result.description or ()]
            return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

        return self._asked(asked)

    def _execute(self, statement: str, parameters: Parameters = None) -> None:
        # An unread result would block the appender on this connection.
        self._asked(lambda connection: connection.execute(statement, parameters).fetchall())

    def prepared(self, table: str, rows: Sequence[Row] | Sequence[Struct]) -> Appendable:
        """Return rows in the form in which `append` writes them without the interpreter lock."""
        if len(rows) >= self.FEWEST_AS_COLUMNS and (kinds := self._kinds(table)):
            return to_columns(kinds, rows)
        return rows

    def _append(self, table: str, rows: Appendable) -> None:
        prepared: Appendable = rows if isinstance(rows, Columns) else self.prepared(table, rows)
        if isinstance(prepared, Columns):
            with self.registered("appended", ArrowTable(self._kinds(table) or {}, [prepared])):
                self._execute(f"INSERT INTO {table} FROM appended")
            return
        with self._asking() as connection:
            appender = connection.appender(table)
            appender.append_rows(
                [
                    [str(one, "utf-8") if isinstance(one, Raw) else one for one in row]
                    for row in (
                        astuple(row) if isinstance(row, Struct) else row for row in prepared
                    )
                ]
            )
            appender.flush()

    @contextmanager
    def registered(self, name: str, table: object) -> Iterator[None]:
        """Let the block's statements read an Arrow table under a name."""
        with self._asking() as connection:
            connection.register(name, table)
        try:
            yield
        except BaseException:
            # In a failed transaction, this fails too and would hide the first error.
            with suppress(duckdb.Error):
                connection.unregister(name)
            raise
        connection.unregister(name)

    def _kinds(self, table: str) -> ColumnKinds | None:
        """Return the kinds of a table's columns; None if a column has none of these kinds."""
        if table not in self._table_kinds:
            described = self.rows(f"DESCRIBE {table}")
            kinds: dict[str, ColumnKind] = {
                name: _KINDS[kind] for name, kind, *_ in described if kind in _KINDS
            }
            found = kinds if len(kinds) == len(described) else None
            if table.startswith(_SCRATCH):
                return found
            self._table_kinds[table] = found
        return self._table_kinds[table]


class StoreWriter(ConnectedReader):
    def execute(self, statement: str, parameters: Parameters = None) -> None:
        """Run statements and discard their results."""
        self._execute(statement, parameters)

    def append(self, table: str, rows: Appendable) -> None:
        """Append rows with values in the order of the table's columns."""
        self._append(table, rows)

    @abstractmethod
    def transaction(self) -> AbstractContextManager[None]:
        """Commit everything that the block writes, or nothing."""
