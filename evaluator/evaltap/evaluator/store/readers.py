"""Read from any thread of the process that holds the store, while the store's own thread writes."""

import re
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Final

import duckdb
import orjson

from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import BusyError, NotReadingError, StorageError
from evaltap.evaluator.store.gate import Lease
from evaltap.evaluator.store.queries import ConnectedReader, Parameters, Record, Row, Rows

_TURN_SECONDS: Final = 10.0
"""How long a writer waits for its turn; each takes a fraction of a second."""


class Readers:
    """Admits a limited number of readers to an open store; others wait.

    Each has its own cursor and reads a snapshot from when it started.  Readers should hold it only as long
    as needed: `Store.reopen` and `close` wait for readers for at most two seconds, then interrupt them.
    """

    def __init__(self, store: Store, *, most_waiting: int = 32, at_once: int = 3) -> None:
        store.share()
        store.limit_unlimited()
        self._store = store
        self._most_waiting = most_waiting
        self._places = threading.BoundedSemaphore(at_once)
        self._waiting = 0
        self._lock = threading.Lock()
        self._writing = threading.Lock()

    @contextmanager
    def cursor(self, *, seconds: float = 2.0) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor in a read-only transaction, valid for a number of seconds.

        Raises TooSlowError when they are over, BusyError if too many readers wait or the file is closing.
        """
        with self._lease(seconds) as lease:
            lease.cursor.execute("BEGIN TRANSACTION READ ONLY")
            yield lease.cursor
            with suppress(duckdb.Error):  # a failed statement may have ended the transaction
                lease.cursor.rollback()

    @contextmanager
    def reading(self, *, seconds: float = 2.0) -> Iterator["CursorReader"]:
        """Yield a reader of the store; raises as `cursor` does."""
        with self._lease(seconds) as lease:
            yield CursorReader(self._store, lease)

    @contextmanager
    def writing(self, *, seconds: float = 2.0) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor to write a few rows to tables that the store's thread does not write.

        One writer at a time: each sees what those before it wrote, such as the item that is taken.
        """
        if not self._writing.acquire(timeout=_TURN_SECONDS):
            raise BusyError(f"{self._store.path}: others are writing to it; try again soon")
        try:
            with self._lease(seconds) as lease:
                yield lease.cursor
        finally:
            self._writing.release()

    @contextmanager
    def _lease(self, seconds: float) -> Iterator[Lease]:
        with self._place(seconds), self._store.gate.lease(self._store.cursor, seconds) as lease:
            yield lease

    @contextmanager
    def _place(self, seconds: float) -> Iterator[None]:
        path = self._store.path
        if not self._places.acquire(blocking=False):
            with self._lock:
                if self._waiting >= self._most_waiting:
                    raise BusyError(
                        f"{path}: {self._waiting} readers are already waiting; try again soon"
                    )
                self._waiting += 1
            try:
                if not self._places.acquire(timeout=seconds):
                    raise BusyError(
                        f"{path}: other readers took longer than {seconds:g} s; try again"
                    )
            finally:
                with self._lock:
                    self._waiting -= 1
        try:
            yield
        finally:
            self._places.release()


class Chunks:
    """The result of a connection's latest statement in chunks; buffered when another statement follows."""

    def __init__(self, fetch: Callable[[], Rows]) -> None:
        self._fetch = fetch
        self._kept: deque[Rows] = deque()
        self._is_latest = True

    def __iter__(self) -> Iterator[Rows]:
        try:
            while chunk := self._next():
                yield chunk
        finally:
            self._is_latest = False

    def _next(self) -> Rows:
        if self._kept:
            return self._kept.popleft()
        return self._fetch() if self._is_latest else []

    def keep(self) -> None:
        """Read the remaining rows into memory; called before the connection's next statement."""
        while self._is_latest and (chunk := self._fetch()):
            self._kept.append(chunk)
        self._is_latest = False


class CursorReader(ConnectedReader):
    """Reads a store with a cursor, from a snapshot at the first statement; writes temporary tables only."""

    def __init__(self, store: Store, lease: Lease) -> None:
        super().__init__(store.path)
        self._lease = lease
        self._begun = False
        self._chunks: Chunks | None = None

    def rows(self, query: str, parameters: Parameters = None) -> Rows:
        """Return all rows of a query; raise NotReadingError for any other statement."""
        refuse_other(query)
        return super().rows(query, parameters)

    def records(self, query: str, parameters: Parameters = None) -> list[Record]:
        """Return all rows of a query as dicts by column name; raise as `rows` does."""
        refuse_other(query)
        return super().records(query, parameters)

    def _execute(self, statement: str, parameters: Parameters = None) -> None:
        refuse_other(statement)
        super()._execute(statement, parameters)

    def fill(self, table: str, rows: Sequence[Row]) -> None:
        """Append rows to a temporary table of another process that reads through this."""
        self._append(table, rows)

    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[Rows]:
        """Yield the rows of a query in chunks; remaining rows are buffered when another statement follows."""
        self.begin(query, parameters)
        self._chunks = Chunks(lambda: self.fetch(size))
        return iter(self._chunks)

    def begin(self, statement: str, parameters: Parameters = None) -> list[str]:
        """Run a statement; return its column names.  `fetch` returns its rows."""
        refuse_other(statement)
        with self._asking() as cursor:
            cursor.execute(statement, parameters)
            return [column[0] for column in cursor.description or ()]

    def fetch(self, size: int) -> Rows:
        """Return up to `size` further rows of the statement run by `begin`."""
        with translated(self.path):
            return self._lease.cursor.fetchmany(size)

    @contextmanager
    def _asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        if self._chunks is not None:
            self._chunks.keep()
            self._chunks = None
        cursor = self._lease.cursor
        if not self._begun:
            cursor.execute("BEGIN TRANSACTION READ ONLY")
            self._begun = True
        try:
            with translated(self.path):
                yield cursor
        except (duckdb.Error, StorageError):
            self._begin_again()
            raise

    def _begin_again(self) -> None:
        """End a transaction that a failed statement made unusable, including its temporary tables."""
        self._begun = False
        with suppress(duckdb.Error):
            self._lease.cursor.rollback()


class Session:
    """A reader for several statements, as commands need."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self.reader = CursorReader(store, lease)
        self._gate = store.gate
        self._lease = lease

    def may_take(self, seconds: float) -> None:
        """Set the time limit of the following statements, in seconds from now."""
        self._gate.extend(self._lease, seconds)

    def cancel(self) -> None:
        """Let the statement under way and those that follow fail; any thread may call this."""
        self._gate.cancel(self._lease)

    def reason(self, error: Exception) -> Exception:
        """Return why a statement failed: its own error, or that the session was ended."""
        return self._lease.ended or error


@contextmanager
def shared_reader(store: Store, seconds: float) -> Iterator[Session]:
    """Yield a session for longer reads, outside the limits of `Readers`; raises the same errors."""
    with store.gate.lease(store.cursor, seconds) as lease:
        store.share()
        try:
            yield Session(store, lease)
        finally:
            store.unshare()


# -- statements that only read: what a reader may run on a store that another writes ----------------

_SPACE: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_NAME: Final = r'(?:\w+|"[^"]+")(?:\.(?:\w+|"[^"]+"))?'
_WRAPPED: Final = re.compile(
    f"{_SPACE}*(?:EXPLAIN{_SPACE}+(?:ANALYZE{_SPACE}+)?"
    f"|CREATE{_SPACE}+(?:OR{_SPACE}+REPLACE{_SPACE}+)?TEMP{_SPACE}+(?:TABLE|VIEW){_SPACE}+{_NAME}{_SPACE}+AS\\b"
    f"|INSERT{_SPACE}+INTO{_SPACE}+{_NAME}{_SPACE})(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
"""Statements around a query: what follows must be one when it is parsed alone.  A read-only transaction, in
which all of this runs, refuses to change anything but temporary tables."""
_PLAIN: Final = re.compile(
    rf"\s*(?:CREATE\s+(?:OR\s+REPLACE\s+)?TEMP\s+TABLE\s+{_NAME}\s*\(\s*\w+\s+\w+(?:\s*,\s*\w+\s+\w+)*\s*\)"
    rf"|DROP\s+(?:TABLE|VIEW)\s+(?:IF\s+EXISTS\s+)?{_NAME})\s*",
    re.IGNORECASE,
)
"""Statements without a query."""
_SOURCES: Final = frozenset(
    ["duckdb_columns", "duckdb_constraints", "duckdb_databases", "duckdb_dependencies",
     "duckdb_extensions", "duckdb_functions", "duckdb_indexes", "duckdb_keywords", "duckdb_memory",
     "duckdb_optimizers", "duckdb_schemas", "duckdb_sequences", "duckdb_settings", "duckdb_tables",
     "duckdb_temporary_files", "duckdb_types", "duckdb_variables", "duckdb_views", "generate_series",
     "histogram", "histogram_values", "json_each", "json_tree", "pg_timezone_names",
     "pragma_database_size", "pragma_show", "pragma_storage_info", "pragma_table_info",
     "pragma_version", "range", "repeat_row", "summary", "unnest"]
)  # fmt: skip
"""Functions to select from.  There are others that change the process, open files or run a text."""
_CHANGING: Final = frozenset(
    ["getenv", "json_execute_serialized_sql", "nextval", "query", "query_table", "setval", "sleep_ms",
     "write_log"]
)  # fmt: skip
"""Functions within expressions that do more than compute."""

_PARSING: Final = Lock()


@lru_cache(1_024)
def refuse_other(statements: str) -> None:
    """Raise NotReadingError for statements that do more than read and fill temporary tables.

    They must still run in a read-only transaction, which protects the file.  This function protects settings,
    other files and other databases.
    """
    for statement in duckdb.extract_statements(statements):
        text = statement.query
        if statement.type != duckdb.StatementType.SELECT:
            if _PLAIN.fullmatch(text):
                continue
            if (wrapped := _WRAPPED.fullmatch(text)) is None:
                raise _not_reading(text, statement.type.name)
            text = wrapped["query"]
        if (tree := _parsed(text)) is None:
            raise _not_reading(statement.query, statement.type.name)
        for name, is_source in _functions(tree):
            if is_source and name not in _SOURCES:
                raise NotReadingError(
                    f"{name}: not one of the functions to select from; expected a table, a view or one"
                    " like range, unnest and json_each"
                )
            if name in _CHANGING:
                raise NotReadingError(
                    f"{name}: a function that does more than it reads; leave it out"
                )


def _not_reading(statement: str, kind: str) -> NotReadingError:
    shown = re.sub(r"\s+", " ", statement.strip())[:80]
    return NotReadingError(
        f"{shown}: a {kind} statement; expected one that reads, such as SELECT or FROM"
    )


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return a connection that only parses; DuckDB has no other way to a parse tree."""
    return duckdb.connect(config={"threads": 1, "enable_external_access": False})


def _parsed(query: str) -> Any:
    """Return the parse tree of one query, None if it is anything else."""
    with _PARSING:
        found = _parser().execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    assert found is not None
    parsed = orjson.loads(found[0])
    return None if parsed["error"] or len(parsed["statements"]) != 1 else parsed["statements"][0]


def _functions(tree: Any) -> Iterator[tuple[str, bool]]:
    """Yield the name of each function called, and whether its result is selected from."""
    left = [(tree, False)]
    while left:
        node, is_source = left.pop()
        if isinstance(node, list):
            left += [(item, False) for item in node]
        elif isinstance(node, dict):
            if "function_name" in node:
                yield node["function_name"].lower(), is_source
            sources = node.get("type") == "TABLE_FUNCTION"
            left += [(value, sources and key == "function") for key, value in node.items()]
