"""The DuckDB file: its schema, transactions and memory limits.  No other module writes it.

One process holds the file.  Rows are inserted in transactions, through DuckDB's Appender or, if there are
many, as Arrow columns.  Tables are append-only (`sql/tables.sql` explains why), and readers use the views in
`sql/views.sql`.
"""

import threading
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from functools import cache
from importlib.resources import files
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import ClassVar, Final, TypeVar

import duckdb
import orjson

from evaltap.evaluator.store.contents import Contents, contents_of, refuse_strange
from evaltap.evaluator.store.damage import read_only, translated
from evaltap.evaluator.store.errors import NoMemoryError, StorageError, StoreError
from evaltap.evaluator.store.file_type import is_archive, is_database, not_a_store
from evaltap.evaluator.store.gate import Gate
from evaltap.evaluator.store.held import hold, let_go, not_held_here
from evaltap.evaluator.store.opening import (
    is_read_only,
    make_log_private,
    open_file,
    open_when_free,
    use,
)
from evaltap.evaluator.store.place import Folder, Place, place_of
from evaltap.evaluator.store.queries import Parameters, Rows, StoreWriter
from evaltap.evaluator.store.results_folder import (
    FOLDER_KEY,
    RESULT_TABLES,
    WORD_KEY,
    let_read,
    results_view,
    trusted_folder,
)
from evaltap.evaluator.store.turn_sizes import compression
from evaltap.schemas.files.refused import no_such_file

MOST_WAITING: Final = 2
"""Steps that may be queued: a checkpoint takes as long as several commits."""

T = TypeVar("T")


class BackgroundWriter:
    """Runs steps in order on a separate thread; after a failed step, it runs none until `join`."""

    def __init__(self) -> None:
        self._pool: ThreadPoolExecutor | None = None
        self._thread: int | None = None
        self._steps: deque[Future[None]] = deque()
        self._failed = False

    def run(self, step: Callable[[], None]) -> None:
        """Queue a step; if too many are queued, wait for the oldest and raise its error."""
        if len(self._steps) >= MOST_WAITING:
            self._finish_step()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="evaltap-store")
        self._steps.append(self._pool.submit(self._run, step))

    def join(self) -> None:
        """Wait until all steps are done; raise the error of the first that failed.

        Returns immediately when called within a step, so that steps may use methods that join.
        """
        if threading.get_ident() != self._thread:
            while self._steps:
                self._finish_step()

    def close(self) -> None:
        """End the thread after its steps."""
        if self._pool is not None:
            self._pool.shutdown()

    def _finish_step(self) -> None:
        try:
            self._steps.popleft().result()
        except BaseException:
            wait(self._steps)
            self._steps.clear()
            self._failed = False
            raise

    def _run(self, step: Callable[[], None]) -> None:
        self._thread = threading.get_ident()
        if self._failed:
            return  # writing later steps would leave a gap
        try:
            step()
        except BaseException:
            self._failed = True
            raise


SCHEMA_VERSION = 14
LANDING_MEMORY: Final = 48
"""DuckDB's memory limit in megabytes while turns of up to 12 KB land: little of the file is read."""
WRITING_MEMORY: Final = 160
"""The same while scores are written."""
SHARED_MEMORY: Final = 512
"""The same while there are readers, if the store's thread alone has less."""
READING_MEMORY: Final = 270
"""The same for a command that reads; more if a statement needs it even on one thread."""
MEMORY_PER_LOG: Final = 3
"""The memory limit divided by the size of the write-ahead log at which DuckDB makes a checkpoint."""

STORE = __name__
"""This module's name, for other packages that use its SQL with `sql`."""


@cache
def sql(module: str, name: str) -> str:
    """Return the content of `sql/<name>.sql` in the package of a module."""
    return (files(module.rpartition(".")[0]) / "sql" / f"{name}.sql").read_text("utf-8")


def utc_now() -> datetime:
    """Return the current time in the tables' form: UTC without a zone."""
    return datetime.now(UTC).replace(tzinfo=None)


class Store(StoreWriter):
    """An open database for one thread; `stream` reads through a separate cursor.

    Raises StoreError if the file cannot be opened: it is held by another process, not a DuckDB file, not
    evaltap's, written by a newer evaltap, or may not be written.
    """

    _may_only_read: ClassVar = False
    """Whether a file that may not be written is opened for reading, instead of refused."""

    def __init__(self, path: str | Path, *, create: bool = True) -> None:
        super().__init__(Path(path))
        if is_archive(self.path):
            place = place_of(self.path)
            raise StoreError(
                f"{place}: is an archive, which is only read; name a DuckDB file, such as the one that"
                f" `evaltap score {place} --db X.duckdb` makes of it"
            )
        if not create and not self.path.exists():
            raise StoreError(
                no_such_file(self.path, "create one with `evaltap consume` or `evaltap score --db`")
            )
        self.gate = Gate(str(path))
        self._reading: tuple[Place, ...] = ()
        self._sharers = 0
        self._limiting = threading.Lock()
        self._memory: int | None = None
        with not_held_here(self.path):
            in_file = self.path != Path(":memory:") and self.path.is_file()
            if in_file and self.path.stat().st_size and not is_database(self.path):
                # DuckDB itself would open a JSON or CSV file as a database of views.
                raise StoreError(not_a_store(self.path))
            self.only_reads = is_read_only(self.path)
            if self.only_reads and not self._may_only_read:
                raise StoreError(read_only(self.path))
            self._connection = open_file(self.path)
            self._held = hold(self.path)
        self._last_now: datetime | None = None
        self._clock = threading.Lock()
        self._in_transaction = False
        self._background = BackgroundWriter()
        try:
            self._create_schema()
        except BaseException:
            self._let_go()
            raise

    def _create_schema(self) -> None:
        found = contents_of(self._connection)
        if found.tables or found.views:
            refuse_strange(self._connection, self.path, found, layout().tables)
        version = self._version() if found.tables else 0
        if version > SCHEMA_VERSION:
            raise StoreError(
                f"{self.path}: written by a newer evaltap (layout {version}, this one knows"
                f" {SCHEMA_VERSION}); upgrade evaltap"
            )
        if version < SCHEMA_VERSION:
            with self.transaction():
                self.execute(sql(__name__, "tables"))
                if found.tables:
                    self.execute(sql(__name__, "migrations"))
                self._create_views()
                self.append("meta", [("schema_version", str(SCHEMA_VERSION))])
            # Replaying DDL from the write-ahead log has destroyed DuckDB files.
            self.execute("CHECKPOINT")
        elif self.path != Path(":memory:"):
            self._mend_views(found)
        self._open_results_folder()

    def _create_views(self) -> None:
        self.execute(sql(__name__, "views"))

    def _mend_views(self, found: Contents) -> None:
        """Replace views that differ from evaltap's."""
        if any(found.views.get(name) != text for name, text in layout().views.items()):
            try:
                with self.transaction():
                    self.execute(sql(__name__, "views"))
            except (duckdb.BinderException, duckdb.CatalogException) as error:
                raise StoreError(
                    f"{self.path}: its tables are not those of layout {SCHEMA_VERSION}"
                    f" ({str(error).splitlines()[0]}); land the log again into a new file"
                ) from error
            self.execute("CHECKPOINT")

    def _open_results_folder(self) -> None:
        """Allow the store to read its folder of results, if that folder knows the store."""
        if (folder := trusted_folder(self._connection, self.path)) is not None:
            self.read_also(Folder(folder))
            for table in RESULT_TABLES:
                self.execute(results_view(table, folder))

    def read_also(self, place: Place) -> None:
        """Reopen the file so that statements may also read and write the files of a place."""
        self.join()
        self._reading = (*self._reading, place)
        self._open_anew(open_file)

    def _version(self) -> int:
        found = self.rows("SELECT max(value::INTEGER) FROM meta WHERE key = 'schema_version'")
        return int(found[0][0] or 0)

    def now(self) -> datetime:
        """Return the time for rows written now: later than any time returned before or stored in the file.

        So scores are never older than their case, even if the machine's clock is set back.
        """
        last = self._last_now or self.rows(_LAST_WRITTEN)[0][0] or datetime.min
        with self._clock:
            last = max(utc_now(), (self._last_now or last) + timedelta(microseconds=1))
            self._last_now = last
        return last

    def identity(self) -> str:
        """Return the id of the file, which stays with it when it is moved."""
        if found := self.rows("SELECT value FROM meta WHERE key = 'store_id'"):
            return str(found[0][0])
        made = uuid.uuid4().hex[:12]
        self.append("meta", [("store_id", made)])
        return made

    def close(self) -> None:
        """Checkpoint and close the file.  Raises the error of a background step."""
        try:
            self.join()
        finally:
            self._background.close()
            self._let_go()

    def _let_go(self) -> None:
        with self.gate.closing(for_good=True):
            self._connection.close()
        let_go(self._held)
        self._held = None

    def run_in_background(self, step: Callable[[], None]) -> None:
        """Run a step that uses the store on another thread while the caller continues.

        Steps run in order.  Other uses of the store wait until all are done, and raise the error of the first
        that failed; later steps are not run.
        """
        self._background.run(step)

    def join(self) -> None:
        """Wait for the background steps; raise the error of the first that failed."""
        self._background.join()

    def read_results_from(self, folder: Path) -> None:
        """Replace the tables of results, which are empty, by views over a folder's Parquet files."""
        self.read_also(Folder(folder))
        with self.transaction():
            for table in RESULT_TABLES:
                self.execute(f"DROP TABLE {table}")
                self.execute(results_view(table, folder))
            self.append("meta", [(FOLDER_KEY, str(folder)), (WORD_KEY, let_read(folder))])

    def share(self) -> None:
        """Allow enough memory for readers until `unshare`.

        May be called from any thread that holds a lease.
        """
        self._limit(sharers=1)

    def unshare(self) -> None:
        """Undo one call of `share`."""
        with suppress(duckdb.Error):  # the file may be closed
            self._limit(sharers=-1)

    def _limit(self, *, sharers: int = 0) -> None:
        # One at a time: the limit of the last reader to leave must not come after that of the next to come.
        with self._limiting:
            self._sharers += sharers
            if self.path == Path(":memory:") or (memory := self._memory) is None:
                return
            megabytes = max(memory, SHARED_MEMORY if self._sharers else 0)
            with self._connection.cursor() as cursor:
                # Other processors prepare rows and serve readers; more DuckDB threads would slow them down.
                # Each checkpoint writes a table's last row group again: large rows need fewer checkpoints.
                cursor.execute(
                    "SET threads = 1;"
                    f" SET checkpoint_threshold = '{memory // MEMORY_PER_LOG}MB'; {compression(memory)}"
                )
                # While a statement of a reader holds more, the limit stays what it was; leaving sets it.
                with suppress(duckdb.OutOfMemoryException):
                    cursor.execute(f"SET memory_limit = '{megabytes}MB'")

    @contextmanager
    def limited_memory(self, megabytes: int = WRITING_MEMORY) -> Iterator[None]:
        """Limit DuckDB's memory in the block, which writes much and reads little.

        Otherwise, DuckDB would keep written data until most of the machine's memory is used.  A shared store
        has the memory that its readers need.
        """
        if self.path == Path(":memory:"):  # there is no file to move data to
            yield
            return
        before = self._memory
        self.limit_memory(megabytes)
        try:
            yield
        finally:
            # A connection lost in the block has no settings; an error here would hide the cause.
            with suppress(duckdb.ConnectionException, StorageError):
                self.limit_memory(before)
                if before is None:
                    self.execute("RESET threads; RESET checkpoint_threshold")

    @contextmanager
    def unlimited_memory(self) -> Iterator[None]:
        """Lift the memory limit in the block, to read rows that may be large."""
        before = self._memory
        self.limit_memory(None)
        try:
            yield
        finally:
            self.limit_memory(before)

    def limit_memory(self, megabytes: int | None) -> None:
        """Set DuckDB's memory limit until the block of `limited_memory` ends; None is its default."""
        self.join()
        self._memory = megabytes
        if megabytes is not None:
            with translated(self.path):
                self._limit()
        elif self.path != Path(":memory:"):
            self.execute("RESET memory_limit")

    def limit_unlimited(self) -> None:
        """Set the limit for readers, if there is no limit yet."""
        if self._memory is None:
            self.limit_memory(SHARED_MEMORY)

    def reopen(self) -> None:
        """Close and reopen the file, between transactions and without open streams.

        DuckDB keeps some 60 bytes per written turn in memory as long as a file is open.  Waits if another
        process opens the file in between; raises StoreHeldError if it does not close it.
        """
        self.join()
        if self.path == Path(":memory:"):
            return
        self._open_anew(open_when_free)
        self._limit()

    def _open_anew(
        self, open_: Callable[[Path, Sequence[Place]], duckdb.DuckDBPyConnection]
    ) -> None:
        with self.gate.closing():
            self._connection.close()
            self._connection = open_(self.path, self._reading)
            self._held = hold(self.path, self._held)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that the block writes, or nothing; nested blocks join the outer one."""
        self.join()
        if self._in_transaction:
            yield
            return
        self._connection.begin()
        self._in_transaction = True
        try:
            yield
            self.join()
        except BaseException:
            # After a disk failure, the transaction may no longer exist.
            with suppress(duckdb.Error):
                self._connection.rollback()
            raise
        finally:
            self._in_transaction = False
        with translated(self.path):
            self._connection.commit()
        make_log_private(self.path)

    @contextmanager
    def _asking(self) -> Iterator[duckdb.DuckDBPyConnection]:
        self.join()
        with translated(self.path):
            yield self._connection

    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[Rows]:
        """Yield the rows of a query in chunks, from a snapshot that does not see later writes."""
        self.join()
        if self._temporaries:  # another connection would not see them
            rows = self.rows(query, parameters)
            yield from (rows[place : place + size] for place in range(0, len(rows), size))
            return
        with self.cursor() as cursor:
            with translated(self.path):
                cursor.execute(query, parameters)
                chunk = cursor.fetchmany(size)
            while chunk:
                yield chunk
                with translated(self.path):
                    chunk = cursor.fetchmany(size)

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return another connection to the same file, for `Readers`; it must not outlive `reopen`."""
        cursor = self._connection.cursor()
        use(cursor)
        return cursor


_LAST_WRITTEN = """
SELECT max(written_at) FROM (
  SELECT max(landed_at) AS written_at FROM offsets
  UNION ALL SELECT max(scored_at) FROM scores
  UNION ALL SELECT max(decided_at) FROM sampling_decisions
  UNION ALL SELECT max(noted_at) FROM alerts
  UNION ALL SELECT max(noted_at) FROM watch_starts
)
"""


@cache
def layout() -> Contents:
    """Return the tables and views of a file written by this version of evaltap.

    DuckDB needs 0.1 s to make them, so they are kept in a file; another version of DuckDB may print a view in
    another way.
    """
    kept = orjson.loads(
        files(__name__.rpartition(".")[0]).joinpath("sql", "layout.json").read_bytes()
    )
    if kept["duckdb"] == duckdb.__version__:
        return Contents(frozenset(kept["tables"]), kept["views"])
    return made_layout()


def made_layout() -> Contents:
    """Return the tables and views that DuckDB reports of a new file."""
    with Store(":memory:") as empty:
        return contents_of(empty._connection)


_NO_LIMIT: Final = "RESET threads; RESET memory_limit"
_WIDER: Final = ("SET threads = 1", _NO_LIMIT)
_FOR_READING: Final = f"SET memory_limit = '{READING_MEMORY}MB'"


class ReadingStore(Store):
    """A store for a command that reads a file.

    DuckDB would take whatever memory the machine has; it moves data to files only at a limit.  A statement
    that does not fit is run again on one thread, which needs less; if it still does not fit, without a limit.
    """

    _may_only_read = True

    def __init__(self, path: Path) -> None:
        self._limits: Iterator[str] = iter(())
        super().__init__(path, create=False)
        self._execute(_FOR_READING)
        self._limits = iter(_WIDER)

    def _open_anew(
        self, open_: Callable[[Path, Sequence[Place]], duckdb.DuckDBPyConnection]
    ) -> None:
        super()._open_anew(open_)
        if next(self._limits, None) is not None:
            self._execute(_FOR_READING)
            self._limits = iter(_WIDER)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit everything that the block writes, or nothing; it would not survive a lack of memory."""
        self._lift()
        with super().transaction():
            yield

    def _asked(self, ask: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        while True:
            try:
                return super()._asked(ask)
            except NoMemoryError:
                if (wider := next(self._limits, None)) is None:
                    raise
                self._execute(wider)

    def _lift(self) -> None:
        for _ in self._limits:
            self._execute(_NO_LIMIT)


class TemporaryStore(Store):
    """A store in a temporary file that is deleted on close, so that memory does not grow with its rows.

    Few reports need its views, which take half the time of making the file, so they are made when a statement
    names the first.
    """

    def __init__(self) -> None:
        self._folder = TemporaryDirectory(prefix="evaltap-")
        self._has_views = False
        super().__init__(Path(self._folder.name) / "scores.duckdb")

    def _create_views(self) -> None:
        pass

    def cursor(self) -> duckdb.DuckDBPyConnection:
        """Return another connection to the same file, with all views."""
        self._make_views()
        return super().cursor()

    def _asked(self, ask: Callable[[duckdb.DuckDBPyConnection], T]) -> T:
        try:
            return super()._asked(ask)
        except duckdb.CatalogException:
            if self._has_views:
                raise
            self._make_views()
            return super()._asked(ask)

    def _make_views(self) -> None:
        if not self._has_views:
            self._has_views = True
            super()._create_views()

    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def open_store(path: Path | None, *, create: bool = True) -> Store:
    """Open the DuckDB file at `path`; without a path, open a file that is deleted when it is closed."""
    if path is not None:
        return Store(path, create=create)
    try:
        return TemporaryStore()
    except OSError:  # no folder for temporary files
        return Store(":memory:")
