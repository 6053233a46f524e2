"""The DuckDB file: laid out, read and written here, and nowhere else.

One process holds the file.  Rows go in inside a transaction, through DuckDB's Appender or, where they
are many, as Arrow columns; tables are append-only (`sql/tables.sql` tells why) and readers use the views
in `sql/views.sql`.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, ClassVar, Self

import duckdb

from evaltap.evaluator.columns import ArrowTable, ColumnKind, ColumnKinds, to_columns
from evaltap.evaluator.database_file import is_database
from evaltap.evaluator.opening import StoreError, open_file, open_when_free, use

SCHEMA_VERSION = 3
WRITING_MEMORY = "160MB"

MOST_BEHIND = 2
"""Steps that may wait to be taken: a checkpoint takes as long as several commits."""

_KINDS: Mapping[str, ColumnKind] = {
    "VARCHAR": "text",
    "JSON": "text",
    "INTEGER": "whole",
    "BIGINT": "whole",
    "DOUBLE": "real",
    "TIMESTAMP": "time",
    "VARCHAR[]": "texts",
}

Row = Sequence[Any]
NoMemoryError = duckdb.OutOfMemoryException
"""What is asked for does not fit into what DuckDB may use."""


@cache
def sql(name: str) -> str:
    """Return the text of `sql/<name>.sql`."""
    return (Path(__file__).parent / "sql" / f"{name}.sql").read_text("utf-8")


def utc_now() -> datetime:
    """Return the time as the tables hold it: UTC, without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class Store:
    """An open database for one thread; `stream` reads through a cursor of its own.

    That thread may leave a step `behind`, and does not notice that another one takes it.  Raises
    StoreError when the file cannot be opened: held by another process, not a DuckDB file, not evaltap's,
    or written by a newer evaltap.
    """

    FEWEST_AS_COLUMNS: ClassVar = 200
    """Fewer rows are appended one by one: that costs no statement, but needs the interpreter throughout."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        self.path = Path(path)
        if not create and not self.path.exists():
            raise StoreError(
                f"{path}: no such file; expected a DuckDB file written by evaltap"
                " (`evaltap consume` or `evaltap score --db` make one)"
            )
        if self.path.is_file() and self.path.stat().st_size and not is_database(self.path):
            # DuckDB itself would open a JSON or CSV file as a database of views.
            raise StoreError(f"{path}: not a DuckDB file; name another one")
        self._connection = open_file(self.path)
        self._last_now: datetime | None = None
        self._clock = threading.Lock()
        self._in_transaction = False
        self._memory: str | None = None
        self._helper: ThreadPoolExecutor | None = None
        self._helping: int | None = None
        self._steps: deque[Future[None]] = deque()
        self._step_failed = False
        self._table_kinds: dict[str, ColumnKinds | None] = {}
        try:
            self._lay_out()
        except BaseException:
            self._connection.close()
            raise

    def _lay_out(self) -> None:
        tables = {name for (name,) in self.rows("SELECT table_name FROM duckdb_tables()")}
        if tables and "meta" not in tables:
            raise StoreError(
                f"{self.path}: a DuckDB file, but not evaltap's (tables: {', '.join(sorted(tables))});"
                " name another file"
            )
        version = self._version() if tables else 0
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: written by a newer evaltap (layout {version}, this one knows"
                f" {SCHEMA_VERSION}); upgrade evaltap"
            )
        if version < SCHEMA_VERSION:
            with self.transaction():
                self.execute(sql("tables"))
                self.execute(sql("migrations"))
                self.execute(sql("views"))
                self.append("meta", [("schema_version", str(SCHEMA_VERSION))])
            # Replaying DDL from the write-ahead log is where DuckDB files have been lost.
            self.execute("CHECKPOINT")
        for (folder,) in self.rows("SELECT value FROM meta WHERE key = 'results_folder'"):
            if not Path(folder).is_dir():
                raise StoreError(
                    f"{self.path}: reads its results from {folder}, which is gone; bring it back"
                )

    def _version(self) -> int:
        found = self.rows("SELECT max(value::INTEGER) FROM meta WHERE key = 'schema_version'")
        return int(found[0][0] or 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def now(self) -> datetime:
        """Return a time for rows that are written now: later than any given before, in this file too.

        So what a case led to is never older than the case, whatever became of the machine's clock.
        """
        last = self._last_now or self.rows(_LAST_WRITTEN)[0][0] or datetime.min
        with self._clock:
            last = max(utc_now(), (self._last_now or last) + timedelta(microseconds=1))
            self._last_now = last
        return last

    def close(self) -> None:
        """Close the file; its write-ahead log is folded in.  Raises what a step left behind raised."""
        try:
            self.settle()
        finally:
            if self._helper is not None:
                self._helper.shutdown()
            self._connection.close()

    def behind(self, step: Callable[[], None]) -> None:
        """Have another thread take a step with the store while the caller does something else.

        Steps are taken in order, a few may wait.  Whatever else uses the store waits until all are done,
        and raises what the first of them raised; those after it are not taken.  DuckDB needs no
        interpreter for most of the work of a commit.
        """
        if len(self._steps) >= MOST_BEHIND:
            self._finish_step()
        if self._helper is None:
            self._helper = ThreadPoolExecutor(1, thread_name_prefix="evaltap-store")
        self._steps.append(self._helper.submit(self._take, step))

    def settle(self) -> None:
        """Wait for the steps that were left behind, if any; raise what the first one raised."""
        if threading.get_ident() != self._helping:
            while self._steps:
                self._finish_step()

    def _finish_step(self) -> None:
        try:
            self._steps.popleft().result()
        except BaseException:
            wait(self._steps)
            self._steps.clear()
            self._step_failed = False
            raise

    def _take(self, step: Callable[[], None]) -> None:
        self._helping = threading.get_ident()
        if self._step_failed:
            return  # nothing is written behind what is missing
        try:
            step()
        except BaseException:
            self._step_failed = True
            raise

    @contextmanager
    def writing_much(self, memory: str = WRITING_MEMORY) -> Iterator[None]:
        """Keep little of the file in memory in the block, which writes much and reads little of it.

        DuckDB would else keep what was written until most of the machine's memory is full.
        """
        if self.path == Path(":memory:"):  # there is no file to which anything could go
            yield
            return
        before = self._memory
        self._use_one_thread()
        self.allow(memory)
        try:
            yield
        finally:
            # A connection that was lost in the block has no settings, and this would hide why.
            with suppress(duckdb.ConnectionException):
                self.allow(before)
                if before is None:
                    self.execute("RESET threads")

    @contextmanager
    def reading_much(self) -> Iterator[None]:
        """Let the block read rows that may be large, whatever a block around it allows."""
        before = self._memory
        self.allow(None)
        try:
            yield
        finally:
            self.allow(before)

    def allow(self, memory: str | None) -> None:
        """Say what DuckDB may keep in memory until the block of `writing_much` ends; None: most."""
        if self.path != Path(":memory:"):
            self._memory = memory
            self.execute(f"SET memory_limit = '{memory}'" if memory else "RESET memory_limit")

    def _use_one_thread(self) -> None:
        # The other processors make the rows, and helpers would only be in their way.
        self.execute("SET threads = 1")

    def reopen(self) -> None:
        """Close the file and open it again, between two transactions and with no stream open.

        DuckDB keeps some 60 bytes of a turn in memory for as long as a file that it writes is open.
        Waits when another process came in between; raises StoreHeld when it stays.
        """
        self.settle()
        if self.path == Path(":memory:"):
            return
        self._connection.close()
        self._connection = open_when_free(self.path)
        if self._memory is not None:
            self._use_one_thread()
            self.allow(self._memory)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what the block writes as one, or nothing of it; a block within another joins it."""
        self.settle()
        if self._in_transaction:
            yield
            return
        self._connection.begin()
        self._in_transaction = True
        try:
            yield
            self.settle()
        except BaseException:
            # After a failure of the disk there may be no transaction any more to roll back.
            with suppress(duckdb.Error):
                self._connection.rollback()
            raise
        finally:
            self._in_transaction = False
        self._connection.commit()

    def execute(self, statement: str, parameters: Any = None) -> None:
        """Run statements whose result is of no interest."""
        self.settle()
        # An unread result would block the appender on this connection.
        self._connection.execute(statement, parameters).fetchall()

    @contextmanager
    def showing(self, name: str, table: object) -> Iterator[None]:
        """Let the block's statements read `table`, an Arrow table, under a name."""
        self.settle()
        self._connection.register(name, table)
        try:
            yield
        except BaseException:
            # In a transaction that failed this fails too, and would hide why.
            with suppress(duckdb.Error):
                self._connection.unregister(name)
            raise
        self._connection.unregister(name)

    def append(self, table: str, rows: Sequence[Row]) -> None:
        """Append rows, in the order of the table's columns."""
        self.settle()
        if len(rows) >= self.FEWEST_AS_COLUMNS and (kinds := self._kinds(table)):
            with self.showing("appended", ArrowTable(kinds, [to_columns(kinds, rows)])):
                self.execute(f"INSERT INTO {table} FROM appended")
            return
        appender = self._connection.appender(table)
        appender.append_rows(rows)
        appender.flush()

    def _kinds(self, table: str) -> ColumnKinds | None:
        """Return what the columns of a table hold; None when one of them has no such kind."""
        if table not in self._table_kinds:
            described = self.rows(f"DESCRIBE {table}")
            kinds: dict[str, ColumnKind] = {
                name: _KINDS[kind] for name, kind, *_ in described if kind in _KINDS
            }
            self._table_kinds[table] = kinds if len(kinds) == len(described) else None
        return self._table_kinds[table]

    def rows(self, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Return all rows of a query, seeing what the open transaction has written."""
        self.settle()
        return self._connection.execute(query, parameters).fetchall()

    def large_rows(self, query: str, parameters: Any = None) -> list[tuple[Any, ...]]:
        """Return rows as `rows` does, with more memory than is allowed when it cannot do without.

        DuckDB reads 2,048 values at a time, however few are asked for and however large they are.
        """
        try:
            return self.rows(query, parameters)
        except NoMemoryError:
            with self.reading_much():
                return self.rows(query, parameters)

    def records(self, query: str, parameters: Any = None) -> list[dict[str, Any]]:
        """Return all rows of a query as dicts by column name."""
        self.settle()
        result = self._connection.execute(query, parameters)
        names = [column[0] for column in result.description or ()]
        return [dict(zip(names, row, strict=True)) for row in result.fetchall()]

    def stream(
        self, query: str, parameters: Any = None, *, size: int = 500
    ) -> Iterator[list[tuple[Any, ...]]]:
        """Yield the rows of a query in chunks, from a cursor that does not see later writes."""
        self.settle()
        with self._connection.cursor() as cursor:
            use(cursor)
            cursor.execute(query, parameters)
            while chunk := cursor.fetchmany(size):
                yield chunk


_LAST_WRITTEN = """
SELECT max(written_at) FROM (
  SELECT max(landed_at) AS written_at FROM offsets UNION ALL SELECT max(scored_at) FROM scores
)
"""


class TemporaryStore(Store):
    """A store in a file of its own that goes when it is closed: memory does not grow with its rows."""

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="evaltap-")
        super().__init__(Path(self._folder.name) / "scores.duckdb")

    def close(self) -> None:
        """Close and delete the file."""
        super().close()
        self._folder.cleanup()
