"""Reading in the process that holds the store, from any thread, while the store's own thread writes."""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import duckdb

from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import BusyError, StorageError
from evaltap.evaluator.store.gate import Lease
from evaltap.evaluator.store.queries import ConnectedReader, Parameters, Record, Rows
from evaltap.evaluator.store.statements import refuse_other


class Readers:
    """Lets some readers at a time into an open store; the others wait for their turn.

    Each reads with a cursor of its own what was committed when it began; a reader keeps it no longer than
    it needs.  `Store.reopen` and `close` wait for readers, two seconds at most, and then interrupt them.
    """

    def __init__(self, store: Store, *, most_waiting: int = 32, at_once: int = 3) -> None:
        store.share()
        store.limit_unlimited()
        self._store = store
        self._most_waiting = most_waiting
        self._places = threading.BoundedSemaphore(at_once)
        self._waiting = 0
        self._lock = threading.Lock()

    @contextmanager
    def cursor(self, *, seconds: float = 2.0) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor in a read-only transaction, for so many seconds.

        Raises TooSlowError when they are over, BusyError when too many wait or the file is being closed.
        """
        with self._lease(seconds) as lease:
            lease.cursor.execute("BEGIN TRANSACTION READ ONLY")
            yield lease.cursor
            with suppress(
                duckdb.Error
            ):  # a statement may have ended the transaction by its failure
                lease.cursor.rollback()

    @contextmanager
    def reading(self, *, seconds: float = 2.0) -> Iterator["CursorReader"]:
        """Yield what reads the store as `Store` does, and raises as `cursor` does."""
        with self._lease(seconds) as lease:
            yield CursorReader(self._store, lease)

    @contextmanager
    def writing(self, *, seconds: float = 2.0) -> Iterator[duckdb.DuckDBPyConnection]:
        """Yield a cursor for a few rows that people write, into tables that the store's thread does not."""
        with self._lease(seconds) as lease:
            yield lease.cursor

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
    """The result of a connection's latest statement, in chunks; kept when another statement comes."""

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
        """Read the rest into memory; called before the connection's next statement."""
        while self._is_latest and (chunk := self._fetch()):
            self._kept.append(chunk)
        self._is_latest = False


class CursorReader(ConnectedReader):
    """Reads a store with a cursor, as it was at the first statement; it can fill temporary tables only."""

    def __init__(self, store: Store, lease: Lease) -> None:
        super().__init__(store.path)
        self._lease = lease
        self._begun = False
        self._chunks: Chunks | None = None

    def rows(self, query: str, parameters: Parameters = None) -> Rows:
        """Return all rows of a query; raise NotReadingError for what is none."""
        refuse_other(query)
        return super().rows(query, parameters)

    def records(self, query: str, parameters: Parameters = None) -> list[Record]:
        """Return all rows of a query as dicts by column name; raise as `rows` does."""
        refuse_other(query)
        return super().records(query, parameters)

    def execute(self, statement: str, parameters: Parameters = None) -> None:
        """Run statements that fill temporary tables; raise NotReadingError for others."""
        refuse_other(statement)
        super().execute(statement, parameters)

    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[Rows]:
        """Yield the rows of a query in chunks; what is left when another statement comes is kept."""
        self.begin(query, parameters)
        self._chunks = Chunks(lambda: self.fetch(size))
        return iter(self._chunks)

    def begin(self, statement: str, parameters: Parameters = None) -> list[str]:
        """Run a statement whose rows `fetch` returns; return the names of its columns."""
        refuse_other(statement)
        with self._asking() as cursor:
            cursor.execute(statement, parameters)
            return [column[0] for column in cursor.description or ()]

    def fetch(self, size: int) -> Rows:
        """Return the next rows of the statement that began last, at most so many."""
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
        """End a transaction that a failed statement has left unusable, with its temporary tables."""
        self._begun = False
        with suppress(duckdb.Error):
            self._lease.cursor.rollback()

    def close(self) -> None:
        """Do nothing: the cursor belongs to its owner."""


class Session:
    """A reader that stays for several statements, as a command does."""

    def __init__(self, store: Store, lease: Lease) -> None:
        self.reader = CursorReader(store, lease)
        self._gate = store.gate
        self._lease = lease

    def may_take(self, seconds: float) -> None:
        """Let what comes now take so long."""
        self._gate.extend(self._lease, seconds)

    def reason(self, error: Exception) -> Exception:
        """Return why a statement failed: the session may have been ended meanwhile."""
        return self._lease.ended or error


@contextmanager
def shared_reader(store: Store, seconds: float) -> Iterator[Session]:
    """Let somebody read for longer, beside `Readers`; raises what they raise."""
    with store.gate.lease(store.cursor, seconds) as lease:
        store.share()
        try:
            yield Session(store, lease)
        finally:
            store.unshare()
