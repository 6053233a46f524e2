"""The server: the process that has the store open lets other processes of the same user read it."""

import logging
import os
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import duckdb

from evaltap.evaluator.store.ceiling import limited_growth
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import BusyError, StoreError
from evaltap.evaluator.store.readers import CursorReader, shared_reader
from evaltap.evaluator.store.remote.messages import (
    PROTOCOL,
    STATEMENT_SECONDS,
    Append,
    Channel,
    Failed,
    Hello,
    More,
    Request,
    Rows,
    Run,
    can_serve,
    packed,
    socket_path,
    unpacked,
)
from evaltap.schemas.errors import EvaltapError

MOST_READERS: Final = 4
GREETING_SECONDS: Final = 5.0
"""How long a connection may say nothing; others wait for its place."""
IDLE_SECONDS: Final = 600.0
"""The maximum idle time of a reader: it prevents old rows from being cleaned up."""

_LOG = logging.getLogger("evaltap.store")


@contextmanager
def served(store: Store, *, lands: bool = False) -> Iterator[None]:
    """Let other processes read the store within the block, if the system has Unix sockets.

    `lands` tells readers whether turns are landed meanwhile.  If the socket cannot be created, a warning is
    logged and the store is not served.
    """
    if not can_serve() or store.path == Path(":memory:"):
        yield
        return
    try:
        server = StoreServer(store, lands=lands)
    except OSError as error:
        _LOG.warning(
            "%s: other commands cannot read it while this process runs (%s)", store.path, error
        )
        yield
        return
    try:
        yield
    finally:
        server.close()


class StoreServer:
    """Listens on the store's socket until it is closed, with one thread for each reader."""

    def __init__(self, store: Store, *, lands: bool = False) -> None:
        self._store = store
        self._lands = lands
        self._path = socket_path(store.path)
        self._lock = threading.Lock()
        self._channels: set[Channel] = set()
        # An existing socket belongs to a dead server, because this process holds the file.
        self._path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX)
        try:
            self._listener.bind(str(self._path))
            self._path.chmod(0o600)  # connections are only possible once it listens
            self._listener.listen(16)
        except OSError:
            self._listener.close()
            raise
        self._inode = self._path.stat().st_ino
        self._thread = threading.Thread(target=self._accept, name="evaltap-served", daemon=True)
        self._thread.start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            channel = Channel(connection)
            with self._lock:
                full = len(self._channels) >= MOST_READERS
                if not full:
                    self._channels.add(channel)
            serve = self._reject if full else self._serve
            threading.Thread(
                target=serve, args=(channel,), name="evaltap-served", daemon=True
            ).start()

    def _reject(self, channel: Channel) -> None:
        error = BusyError(
            f"{self._store.path}: {MOST_READERS} commands are already reading it; try again"
        )
        with suppress(OSError, ValueError, EvaltapError):
            channel.request()  # data left unread would break the connection for the other end, too
            channel.send(_failed(error))
        channel.close()

    def _serve(self, channel: Channel) -> None:
        try:
            with suppress(OSError, EvaltapError, duckdb.Error):
                self._answer(channel)
        except Exception:  # a reader's mistake must not stop the process that holds the store
            _LOG.exception("%s: a reader was rejected", self._store.path)
        finally:
            channel.close()
            with self._lock:
                self._channels.discard(channel)

    def _answer(self, channel: Channel) -> None:
        channel.expect(GREETING_SECONDS)
        first = channel.request()
        channel.expect(IDLE_SECONDS)
        channel.send(Hello(PROTOCOL, self._lands))
        if not isinstance(first, Hello) or first.protocol != PROTOCOL:
            return
        with shared_reader(self._store, IDLE_SECONDS) as session:
            answers = _Answers(session.reader)
            while (request := channel.request()) is not None:
                seconds = request.seconds if isinstance(request, Run) else STATEMENT_SECONDS
                session.may_take(min(seconds, STATEMENT_SECONDS))
                try:
                    with limited_growth():
                        answer: Rows | Failed = answers.to(request)
                except MemoryError:
                    answer = _failed(
                        BusyError(f"{self._store.path}: not enough memory; narrow the query")
                    )
                except (EvaltapError, duckdb.Error, TypeError, ValueError) as error:
                    answer = _failed(session.reason(error))
                channel.send(answer)
                session.may_take(IDLE_SECONDS)

    def close(self) -> None:
        """Stop listening, and close the connections."""
        # shutdown wakes the accepting thread, which close alone does not.
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join(2)
        with self._lock:
            for channel in self._channels:
                channel.close()
        with suppress(OSError):
            if os.stat(self._path).st_ino == self._inode:
                self._path.unlink()


class _Answers:
    def __init__(self, reader: CursorReader) -> None:
        self._reader = reader
        self._names: list[str] = []

    def to(self, request: Request) -> Rows:
        match request:
            case Run(statement, values, size, _):
                self._names = self._reader.begin(statement, unpacked(values))
                return self._rows(size)
            case More(size):
                return self._rows(size)
            case Append(table, rows):
                self._reader.fill(table, [unpacked(row) for row in rows])
                return Rows([], [], more=False)
            case _:
                raise StoreError("an unexpected greeting")

    def _rows(self, size: int) -> Rows:
        rows = self._reader.fetch(size)
        return Rows(self._names, [[packed(one) for one in row] for row in rows], len(rows) == size)


def _failed(error: Exception) -> Failed:
    return Failed(type(error).__name__, str(error))
