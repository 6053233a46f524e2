"""The client: reads a store that another process has open."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import duckdb
from msgspec import Struct
from msgspec.structs import astuple

from evaltap.evaluator.store import errors
from evaltap.evaluator.store.archives.reading import ArchiveStore
from evaltap.evaluator.store.ceiling import limited_growth
from evaltap.evaluator.store.database import ReadingStore, Store
from evaltap.evaluator.store.errors import BusyError, StoreError, StoreHeldError
from evaltap.evaluator.store.file_type import is_archive
from evaltap.evaluator.store.queries import Parameters, Record, Row, StoreReader
from evaltap.evaluator.store.queries import Rows as RowList
from evaltap.evaluator.store.readers import Chunks, CursorReader, Readers
from evaltap.evaluator.store.remote.messages import (
    PROTOCOL,
    STATEMENT_SECONDS,
    Answer,
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
from evaltap.schemas.errors import InputError

_ROWS_AT_ONCE: Final = 5_000
_ROWS_TO_APPEND: Final = 2_000
_CONNECT_SECONDS: Final = 10.0


def open_to_read(path: Path) -> "Store | RemoteReader":
    """Open a store for reading: the file itself, or through the process that has it open; or an archive.

    Raises StoreHeldError if that process does not serve the file, and the same errors as Store.
    """
    if is_archive(path):
        return ArchiveStore(path)
    try:
        return ReadingStore(path)
    except StoreHeldError:
        if (reader := RemoteReader.of(path)) is None:
            raise
        return reader


@contextmanager
def one_statement(path: Path, seconds: float) -> Iterator["CursorReader | RemoteReader"]:
    """Yield a reader for a single read-only statement of a user, limited to some seconds."""
    with open_to_read(path) as opened:
        if isinstance(opened, RemoteReader):
            opened.seconds = seconds
            yield opened
        elif isinstance(opened, Store):
            with Readers(opened).reading(seconds=seconds) as reader, limited_growth():
                yield reader


class Selected(NamedTuple):
    """What a statement returns."""

    names: list[str]
    kinds: list[str]
    """DuckDB's types of the columns; only if asked for."""
    chunks: Iterator[RowList]


@contextmanager
def selected(
    path: Path, statement: str, seconds: float, *, typed: bool = False
) -> Iterator[Selected]:
    """Yield the rows of one statement of a user that only reads, within a number of seconds.

    Raises InputError for several statements, and for one that DuckDB refuses.
    """
    with one_statement(path, seconds) as reader:
        try:
            count = len(duckdb.extract_statements(statement))
            if count != 1:
                raise InputError(f"found {count} statements; expected one")
            described = _described(reader, statement) if typed else None
            names = reader.begin(statement)
            kinds = described or ["VARCHAR"] * len(names)
            yield Selected(names, kinds, iter(lambda: reader.fetch(_ROWS_AT_ONCE), []))
        except duckdb.Error as error:
            if isinstance(error, duckdb.InterruptException):
                raise  # the time limit was exceeded
            first, _, _ = str(error).partition("\n\n")  # the rest repeats the statement
            raise InputError(" ".join(first.split())) from None


def _described(reader: StoreReader, statement: str) -> list[str] | None:
    """Return the types of a statement's columns; None for one like EXPLAIN, which has none to describe."""
    try:
        return [kind for _, kind, *_ in reader.rows(f"DESCRIBE {statement}")]
    except duckdb.ParserException:
        return None


class RemoteReader(StoreReader):
    """Reads a store through the socket of the process that has it open."""

    def __init__(self, path: Path, channel: Channel) -> None:
        self.path = path
        self._channel = channel
        self._chunks: Chunks | None = None
        self._answer: Rows | None = None
        self.seconds = STATEMENT_SECONDS

    @classmethod
    def of(cls, path: Path) -> "RemoteReader | None":
        """Connect to the process that has a file open; None if it does not listen."""
        if not can_serve():
            return None
        connection = socket.socket(socket.AF_UNIX)
        connection.settimeout(_CONNECT_SECONDS)
        try:
            connection.connect(str(socket_path(path)))
        except OSError:
            connection.close()
            return None
        reader = cls(path, Channel(connection))
        try:
            reader._greet()
        except BaseException:
            reader.close()
            raise
        connection.settimeout(None)
        return reader

    def _greet(self) -> None:
        answer = self._request(Hello(PROTOCOL))
        if not isinstance(answer, Hello) or answer.protocol != PROTOCOL:
            raise StoreHeldError(
                f"{self.path}: open in another version of evaltap; use that version, or stop the process"
            )
        self.lands = answer.lands

    def _request(self, request: Request) -> Answer:
        try:
            self._channel.send(request)
            answer = self._channel.answer()
        except OSError as error:
            raise BusyError(
                f"{self.path}: the process that has it open does not answer ({error}); stop that process,"
                " or read a copy of the file"
            ) from None
        if answer is None:
            raise BusyError(
                f"{self.path}: the process that had it open has ended; run the command again"
            )
        if isinstance(answer, Failed):
            raise _error(answer)
        return answer

    def _run(self, statement: str, parameters: Parameters, size: int) -> Rows:
        if self._chunks is not None:
            self._chunks.keep()
            self._chunks = None
        return self._rows_of(Run(statement, packed(parameters), size, self.seconds))

    def _rows_of(self, request: Request) -> Rows:
        answer = self._request(request)
        if not isinstance(answer, Rows):
            raise StoreError(f"{self.path}: an invalid answer ({type(answer).__name__})")
        return answer

    def _all(self, statement: str, parameters: Parameters) -> tuple[list[str], RowList]:
        answer = self._run(statement, parameters, _ROWS_AT_ONCE)
        found = _tuples(answer)
        while answer.more:
            answer = self._rows_of(More(_ROWS_AT_ONCE))
            found += _tuples(answer)
        return answer.names, found

    def rows(self, query: str, parameters: Parameters = None) -> RowList:
        return self._all(query, parameters)[1]

    def records(self, query: str, parameters: Parameters = None) -> list[Record]:
        names, rows = self._all(query, parameters)
        return [dict(zip(names, row, strict=True)) for row in rows]

    def _execute(self, statement: str, parameters: Parameters = None) -> None:
        self._all(statement, parameters)

    def stream(
        self, query: str, parameters: Parameters = None, *, size: int = 500
    ) -> Iterator[RowList]:
        """Yield the rows of a query in chunks; another statement buffers the remaining rows."""
        self._answer = self._run(query, parameters, size)
        self._chunks = Chunks(lambda: self.fetch(size))
        return iter(self._chunks)

    def begin(self, statement: str, parameters: Parameters = None) -> list[str]:
        """Run a statement whose rows `fetch` returns; return the names of its columns."""
        self._answer = self._run(statement, parameters, _ROWS_AT_ONCE)
        return self._answer.names

    def fetch(self, size: int) -> RowList:
        """Return the next rows of the last statement; empty at the end."""
        answer, self._answer = self._answer, None
        if answer is None:
            return []
        if answer.more:
            self._answer = self._rows_of(More(size))
        return _tuples(answer)

    def _append(self, table: str, rows: Sequence[Row] | Sequence[Struct]) -> None:
        for start in range(0, len(rows), _ROWS_TO_APPEND):
            part = rows[start : start + _ROWS_TO_APPEND]
            plain = [astuple(row) if isinstance(row, Struct) else row for row in part]
            self._rows_of(Append(table, [[packed(one) for one in row] for row in plain]))

    def close(self) -> None:
        self._channel.close()


def _tuples(answer: Rows) -> RowList:
    return [tuple(map(unpacked, row)) for row in answer.rows]


def _error(failed: Failed) -> Exception:
    """Return the exception that was raised at the other end."""
    for module in (errors, duckdb):
        kind = getattr(module, failed.kind, None)
        if isinstance(kind, type) and issubclass(
            kind, (StoreError, errors.StorageError, duckdb.Error)
        ):
            return kind(failed.message)
    return StoreError(failed.message)
