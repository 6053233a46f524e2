"""The local log: records in a SQLite file in WAL mode, the embedded counterpart of a Kafka topic.

One writer at a time appends batches; any number of readers, also in other processes, read from
their own offset and neither block nor write. The file belongs to its user: mode 0600. A process
that dies loses nothing that was appended; a power cut may lose the last moments.
"""

import os
import sqlite3
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import orjson

from evaltap.schemas.errors import InputError
from evaltap.schemas.log.opening import (
    APPLICATION_ID,
    ERASED_TABLE,
    connect_to_append,
    connect_to_read,
)
from evaltap.schemas.wire.record import WireRecord, parse_seq

RECORDS_PER_READ = 500


class LocalLog:
    """An open log; obtain it from `open_log`. Used from one thread at a time, in one process.

    Methods raise `sqlite3.Error` when the disk, not the caller, is at fault.
    """

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.connection = connection
        row = connection.execute("SELECT value FROM meta WHERE name = 'log_id'").fetchone()
        self.log_id: str = row[0] if row else ""

    def append(self, records: Sequence[WireRecord]) -> int:
        """Append the records in one transaction, all or none; return the offset of the last one."""
        now = time.time()
        rows = [
            (record.key or b"", _pack(record.headers), record.value or b"", now)
            for record in records
        ]
        self.connection.execute("BEGIN IMMEDIATE")
        try:
            self.connection.executemany(
                "INSERT INTO records (key, headers, value, appended_at) VALUES (?, ?, ?, ?)", rows
            )
            last = self.end_offset() - 1
            self.connection.execute("COMMIT")
        except BaseException:
            # On a full disk SQLite has rolled back already, so there is nothing to undo.
            with suppress(sqlite3.Error):
                self.connection.execute("ROLLBACK")
            raise
        return last

    def read(
        self, offset: int, limit: int, *, max_bytes: int | None = None
    ) -> list[tuple[int, WireRecord]]:
        """Return up to `limit` records starting at `offset`, each with its own offset.

        `max_bytes` limits what is loaded, with at least one record. Returns what precedes a damaged
        page; only an unreadable first record is an error.
        """
        rows = self.connection.execute(
            'SELECT "offset", key, headers, value FROM records'
            ' WHERE "offset" >= ? ORDER BY "offset" LIMIT ?',
            (offset, limit),
        )
        found: list[tuple[int, WireRecord]] = []
        size = 0
        try:
            for number, key, headers, value in rows:
                if number < (found[-1][0] + 1 if found else offset):
                    # A torn file may list rows twice: a reader that continued after the last one
                    # would loop.
                    if found:
                        break
                    raise sqlite3.DatabaseError(
                        "the log is malformed: its offsets are not ascending"
                    )
                record = WireRecord(_as_bytes(key), _as_bytes(value), unpack_headers(headers))
                size += record.size
                if found and max_bytes is not None and size > max_bytes:
                    break
                found.append((number, record))
        except sqlite3.Error:
            if not found:
                raise
        finally:
            rows.close()  # an open statement would hold its snapshot of the file
        return found

    def records(self) -> Iterator[tuple[int, WireRecord]]:
        """Yield every record with its offset; raises what `read` raises."""
        offset = self.start_offset()
        while batch := self.read(offset, RECORDS_PER_READ):
            yield from batch
            offset = batch[-1][0] + 1

    def start_offset(self) -> int:
        """Return the offset of the oldest record, or the next one to be assigned when empty."""
        row = self.connection.execute('SELECT min("offset") FROM records').fetchone()
        return row[0] if row[0] is not None else self.end_offset()

    def end_offset(self) -> int:
        """Return a lower bound for the next record's offset."""
        row = self.connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'records'"
        ).fetchone()
        return (row[0] if row else 0) + 1

    def cursor(self, name: str) -> int:
        """Return where the named reader continues, 0 when it has never read."""
        row = self.connection.execute(
            "SELECT next_offset FROM cursors WHERE name = ?", (name,)
        ).fetchone()
        return row[0] if row else 0

    def move_cursor(self, name: str, next_offset: int) -> None:
        """Mark everything before `next_offset` as processed; never moves backwards."""
        self.connection.execute(
            "INSERT INTO cursors (name, next_offset, updated_at) VALUES (?, ?, ?)"
            " ON CONFLICT (name) DO UPDATE SET updated_at = excluded.updated_at,"
            " next_offset = max(next_offset, excluded.next_offset)",
            (name, next_offset, time.time()),
        )

    def trim(self, before_offset: int) -> int:
        """Delete the records before an offset to free space; return how many."""
        deleted = self.connection.execute(
            'DELETE FROM records WHERE "offset" < ?', (before_offset,)
        )
        return deleted.rowcount

    def erase(self, offsets: Sequence[int]) -> None:
        """Delete records so that no byte of them remains in the file or its WAL, only their numbers.

        The file is rewritten, which needs as much free space again. Raises InputError when another
        process reads or writes for longer than the busy timeout.
        """
        try:
            self.connection.execute("PRAGMA secure_delete = ON")
            self.connection.execute("BEGIN IMMEDIATE")
            self.connection.execute(ERASED_TABLE)
            self.connection.executemany(
                "INSERT INTO erased VALUES (?, ?)", [*self._numbers(offsets)]
            )
            self.connection.executemany(
                'DELETE FROM records WHERE "offset" = ?', [(offset,) for offset in offsets]
            )
            self.connection.execute("COMMIT")
            self.connection.execute("VACUUM")
            busy = self.connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]
        except sqlite3.OperationalError as error:
            raise InputError(_not_erased(self.path, str(error))) from error
        if busy:
            raise InputError(_not_erased(self.path, "the journal is in use"))

    def erased(self) -> list[tuple[str, int]]:
        """Return the producer and the number of each record that was erased."""
        try:
            return self.connection.execute("SELECT producer_id, seq FROM erased").fetchall()
        except sqlite3.OperationalError:  # nothing was erased yet
            return []

    def _numbers(self, offsets: Sequence[int]) -> Iterator[tuple[str, int]]:
        for offset in offsets:
            for found, record in self.read(offset, 1):
                producer_id, seq = record.header("producer_id"), parse_seq(record.header("seq"))
                if found == offset and producer_id and seq is not None:
                    yield producer_id, seq

    def used_bytes(self) -> int:
        """Return the bytes in use by records and indexes, without free pages."""
        pages, free, size = (
            self.connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "freelist_count", "page_size")
        )
        return int((pages - free) * size)

    def changes(self) -> int:
        """Return a number that changes once another connection has committed."""
        return int(self.connection.execute("PRAGMA data_version").fetchone()[0])

    def close(self) -> None:
        """Close the file; the log object cannot be used afterwards."""
        self.connection.close()


def open_log(path: str | os.PathLike[str], *, mode: Literal["append", "read"]) -> LocalLog:
    """Open a local log to append to (created if absent, mode 0600) or read-only.

    Raises InputError when the path cannot be used: missing (read), a directory, not readable or
    writable, some other file, or a log of a newer format.
    """
    where = Path(path)
    try:
        if where.is_dir():
            raise InputError(
                f"{where} is a directory; expected the file of a local log, e.g. log.db"
            )
        # Opening a pipe would wait for somebody to write to it.
        if where.exists() and not where.is_file():
            raise InputError(f"{where} is a pipe or device; expected the file of a local log")
        connection = connect_to_append(where) if mode == "append" else connect_to_read(where)
    except (OSError, sqlite3.Error) as error:
        raise InputError(_unusable(where, mode, error)) from error
    try:
        return LocalLog(where, connection)
    except sqlite3.Error as error:
        connection.close()
        raise InputError(_unusable(where, mode, error)) from error


def file_identity(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from one that replaces it; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def is_damage(error: BaseException | None) -> bool:
    """Return whether an error means that the file itself is damaged, not the disk or a lock."""
    if not isinstance(error, sqlite3.DatabaseError):
        return False
    signs = ("malformed", "not a database", "corrupt", "Could not decode")
    return any(sign in str(error) for sign in signs)


def quarantine(path: Path) -> Path | None:
    """Rename a damaged log, so that a new one can replace it; return its new name.

    None when the file is not recognizable as our log: it may be some other file of the user's.
    """
    try:
        with path.open("rb") as file:
            headers = [file.read(100), *_headers_in_journal(path)]
        if not any(header[68:72] == APPLICATION_ID.to_bytes(4, "big") for header in headers):
            return None
        aside = path.with_name(
            f"{path.name}.bad-{time.strftime('%Y%m%dT%H%M%S')}-{uuid.uuid4().hex[:6]}"
        )
        for ending in ("-wal", ""):
            with suppress(FileNotFoundError):
                path.with_name(path.name + ending).rename(aside.with_name(aside.name + ending))
        path.with_name(path.name + "-shm").unlink(missing_ok=True)
    except OSError:
        return None
    return aside


def _headers_in_journal(path: Path) -> Iterator[bytes]:
    """Yield the file's header as it is in its write-ahead log: until a checkpoint it may be there only.

    The layout is SQLite's (https://www.sqlite.org/walformat.html): a header of 32 bytes, then frames of 24
    bytes and a page each.
    """
    with suppress(FileNotFoundError), path.with_name(path.name + "-wal").open("rb") as journal:
        page_size = int.from_bytes(journal.read(32)[8:12], "big")
        while page_size and len(frame := journal.read(24 + 100)) == 24 + 100:
            if frame[:4] == b"\0\0\0\1":  # of the first page
                yield frame[24:]
            journal.seek(page_size - 100, os.SEEK_CUR)


def _unusable(path: Path, mode: str, error: Exception) -> str:
    if isinstance(error, sqlite3.DatabaseError) and "not a database" in str(error):
        return f"{path} is not an evaltap log (not a SQLite file); name another file"
    if _is_of_another_user(path):
        return f"cannot open the log {path}: it is another user's; run agent and evaltap as the same user"
    if not path.parent.is_dir():
        return f"the folder {path.parent} for the log {path.name} does not exist; create it first"
    needed = "readable" if mode == "read" else "writable"
    return f"cannot open the log {path} ({error}): make the file and its directory {needed}"


def _is_of_another_user(path: Path) -> bool:
    try:
        return os.geteuid() not in (0, path.stat().st_uid)
    except PermissionError:  # it is in a folder that only others may enter
        return True
    except (OSError, AttributeError):  # Windows has no geteuid
        return False


def _not_erased(path: Path, why: str) -> str:
    return (
        f"{path}: could not be rewritten ({why}), so erased bytes may remain; stop the processes that use"
        " it and erase again"
    )


def _pack(headers: tuple[tuple[str, bytes], ...]) -> str:
    pairs = [(name, value.decode("utf-8", "replace")) for name, value in headers]
    return orjson.dumps(pairs).decode()


def _as_bytes(value: object) -> bytes:
    """Return a column's bytes; a damaged row may hold something else, and becomes a dead letter."""
    if isinstance(value, bytes):
        return value
    return value.encode("utf-8", "replace") if isinstance(value, str) else b""


def unpack_headers(text: object) -> tuple[tuple[str, bytes], ...]:
    """Return a row's headers; a damaged row has none, so that it becomes a dead letter."""
    try:
        pairs = orjson.loads(text if isinstance(text, str | bytes) else b"")
        return tuple((str(name), str(value).encode()) for name, value in pairs)
    except (ValueError, TypeError):
        return ()
