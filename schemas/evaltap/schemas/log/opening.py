"""Connections to the file of a local log: created, checked against evaltap's schema, and set up."""

import os
import re
import sqlite3
import time
import uuid
from collections.abc import Mapping
from contextlib import closing, suppress
from functools import cache
from pathlib import Path
from typing import Final

from evaltap.schemas.errors import InputError
from evaltap.schemas.files.refused import similar_file

APPLICATION_ID = 0x65767470  # "evtp" in the file header identifies our logs
FORMAT_VERSION = 1
BUSY_TIMEOUT_SECONDS = 5.0
SKIPPED_AFTER_BOOT = 1_000_000
"""More records than a power cut can take: the WAL is synced long before it holds that many."""
MAX_OBJECTS = 100
"""Maximum tables and other objects in a log; evaltap creates three."""
_OBJECTS = (
    "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite!_%' ESCAPE '!' LIMIT ?"
)
_SCHEMA = Path(__file__).parent / "sql" / "local_log.sql"
TRIMMED_TABLE: Final = """
CREATE TABLE IF NOT EXISTS trimmed (
    producer_id TEXT PRIMARY KEY,
    last_seq    INTEGER NOT NULL,  -- its records up to this one were landed by all consumers and deleted
    headers     TEXT,              -- of its last manifest among them
    value       BLOB
) STRICT
"""
"""Created when records are first trimmed."""
ERASED_TABLE: Final = """
CREATE TABLE IF NOT EXISTS erased (
    producer_id TEXT NOT NULL,
    seq         INTEGER NOT NULL  -- its record of this number was erased on request
) STRICT
"""
"""Created when records are first erased."""


class LogMissingError(InputError):
    """Raised for a log that no recorder has written yet; it may appear later."""


def connect_to_append(path: Path) -> sqlite3.Connection:
    """Connect to a log to write to it, created if absent; raises what SQLite raises, and InputError."""
    with suppress(FileExistsError):
        # SQLite gives its -wal and -shm files the mode of the file itself.
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    connection = sqlite3.connect(
        path, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if not _is_log(connection, path, new_allowed=True):
            _initialise(connection)
        connection.execute("PRAGMA synchronous = NORMAL")
        _note_boot(connection)
        # Fail at startup, not at the first case, when the file cannot be written.
        connection.execute("BEGIN IMMEDIATE")
        connection.execute("ROLLBACK")
    except BaseException:
        connection.close()
        raise
    return connection


def _initialise(connection: sqlite3.Connection) -> None:
    """Turn an empty file into a log; several processes may try concurrently."""
    _set_wal(connection)
    connection.executescript(
        f"""BEGIN IMMEDIATE;
        {_SCHEMA.read_text("utf-8")};
        INSERT INTO meta VALUES ('log_id', '{uuid.uuid4().hex}') ON CONFLICT DO NOTHING;
        INSERT INTO meta VALUES ('boot_id', '{boot_id()}') ON CONFLICT DO NOTHING;
        PRAGMA user_version = {FORMAT_VERSION};
        PRAGMA application_id = {APPLICATION_ID};
        COMMIT;"""
    )


def boot_id() -> str:
    """Return the id of the machine's current boot; empty where unavailable."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
    except OSError:
        return ""


def _note_boot(connection: sqlite3.Connection) -> None:
    """After a reboot, assign no offset that a reader may have seen before.

    A power cut can take the last records. A reader that had them would skip their replacements.
    """
    now = boot_id()
    stored = _stored_boot(connection)
    if not now or stored == now:
        return
    connection.execute("BEGIN IMMEDIATE")
    # Another process may have been first.
    if stored is not None and _stored_boot(connection) == stored:
        given = connection.execute(
            "UPDATE sqlite_sequence SET seq = seq + ? WHERE name = 'records'", (SKIPPED_AFTER_BOOT,)
        ).rowcount
        if not given:
            connection.execute(
                "INSERT INTO sqlite_sequence VALUES ('records', ?)", (SKIPPED_AFTER_BOOT,)
            )
    connection.execute(
        "INSERT INTO meta VALUES ('boot_id', ?)"
        " ON CONFLICT (name) DO UPDATE SET value = excluded.value",
        (now,),
    )
    connection.execute("COMMIT")
    # A second power cut must not undo this: the same offsets would be skipped, and then reassigned.
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchall()


def _stored_boot(connection: sqlite3.Connection) -> str | None:
    row = connection.execute("SELECT value FROM meta WHERE name = 'boot_id'").fetchone()
    return row[0] if row else None


def _set_wal(connection: sqlite3.Connection) -> None:
    # Changing the journal mode ignores the busy timeout, so two first writers may collide.
    deadline = time.monotonic() + BUSY_TIMEOUT_SECONDS
    while True:
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def connect_to_read(path: Path) -> sqlite3.Connection:
    """Connect to a log to read it only; raises what SQLite raises, and InputError."""
    if not path.exists():
        hint = similar_file(path) or "check the path, or start an agent that records to it first"
        raise LogMissingError(f"no log at {path}: {hint}")
    uri = path.absolute().as_uri() + "?mode=ro"
    try:
        return _connect_uri(uri, path)
    except sqlite3.OperationalError:
        if _written_to(path) or not os.access(path, os.R_OK):
            raise
        # On read-only media SQLite cannot create its -shm file; a file at rest needs none.
        return _connect_uri(uri + "&immutable=1", path)


def _connect_uri(uri: str, path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(
        uri, uri=True, timeout=BUSY_TIMEOUT_SECONDS, isolation_level=None, check_same_thread=False
    )
    try:
        if not _is_log(connection, path, new_allowed=False):
            raise LogMissingError(f"{path} is empty: no recorder has written to it yet")
    except BaseException:
        connection.close()
        raise
    return connection


def _written_to(path: Path) -> bool:
    journal = path.with_name(path.name + "-wal")
    return journal.exists() and journal.stat().st_size > 0


def _is_log(connection: sqlite3.Connection, path: Path, *, new_allowed: bool) -> bool:
    """Return whether the file is a log (False: empty); raises InputError when it is neither."""
    # Count first: another process may just be turning the empty file into a log.
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    application = connection.execute("PRAGMA application_id").fetchone()[0]
    if application == APPLICATION_ID:
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version > FORMAT_VERSION:
            raise InputError(
                f"{path} is a log of format {version}; this evaltap reads up to format "
                f"{FORMAT_VERSION}: upgrade evaltap"
            )
        _check_schema(connection, path)
        return True
    if tables or application:
        remedy = "name a new file" if new_allowed else "name the file that a recorder wrote"
        raise InputError(f"{path} is a SQLite database, but not an evaltap log: {remedy}")
    return False


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    """Raise InputError if a foreign file could make a statement do more than it says.

    A view in place of a table may never end, a trigger or a computed column runs for each row.
    """
    connection.execute("PRAGMA trusted_schema = OFF")
    expected = _schema_of(_SCHEMA.read_text("utf-8"))
    later = _schema_of(f"{TRIMMED_TABLE};{ERASED_TABLE}")
    found = connection.execute(_OBJECTS, (MAX_OBJECTS + 1,)).fetchall()
    named = {(kind, name): _without_comments(sql) for kind, name, sql in found}
    foreign = [f"{kind} {name}" for kind, name in named if kind in ("view", "trigger")]
    foreign += [
        f"{kind} {name}" for (kind, name), sql in expected.items() if named.get((kind, name)) != sql
    ]
    foreign += [f"table {key[1]}" for key, sql in later.items() if named.get(key, sql) != sql]
    foreign += [f"index {name}" for kind, name in named if kind == "index"]
    if foreign or len(found) > MAX_OBJECTS:
        what = f"{foreign[0]:.100}" if foreign else "the number of its tables"
        raise InputError(
            f"{path} claims to be an evaltap log, but {what!r} differs from evaltap's schema: name the"
            " file that a recorder wrote"
        )


@cache
def _schema_of(statements: str) -> Mapping[tuple[str, str], str]:
    with closing(sqlite3.connect(":memory:")) as connection:
        connection.executescript(statements)
        return {
            (kind, name): _without_comments(sql)
            for kind, name, sql in connection.execute(_OBJECTS, (MAX_OBJECTS,))
        }


def _without_comments(sql: str) -> str:
    """Return a statement's words: SQLite keeps its comments, which differ between versions."""
    return " ".join(re.sub(r"--[^\n]*", "", sql).split())
