"""Open the DuckDB file for one process at a time, repair a damaged log, and explain other problems."""

import logging
import os
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import duckdb

from evaltap.evaluator.store.damage import explained, set_log_aside
from evaltap.evaluator.store.errors import StoreError, StoreHeldError
from evaltap.evaluator.store.place import Place
from evaltap.evaluator.store.queries import sql_text

ROWS_PER_GROUP = 4_096
"""Rows of a row group: a checkpoint rewrites a table's last group completely until the group is full."""
MOST_LATE_ROWS: Final = 1_000
"""For up to so many first rows of a sorted result, DuckDB reads the sort columns first, and the others only
for those rows."""
NAME: Final = "evaltap"
"""The database's name within the connection."""
HELD_SECONDS = 60.0
"""How long to wait for a process that opened the file while it was briefly closed."""

_LOG = logging.getLogger("evaltap.store")


def _attached(path: Path, reading: Sequence[Place]) -> duckdb.DuckDBPyConnection:
    settings: dict[str, Any] = {
        "autoinstall_known_extensions": "false",
        "late_materialization_max_rows": MOST_LATE_ROWS,
    }
    in_memory, only_read = str(path) == ":memory:", is_read_only(path)
    if only_read:
        settings["temp_directory"] = ""  # nothing can be written next to the file
    elif not in_memory:
        # Data that does not fit into memory is spilled next to the file, not to the working directory.
        settings["temp_directory"] = f"{path}.tmp"
    new = not in_memory and not path.exists()
    connection = duckdb.connect(config=settings)
    try:
        # The times in the tables are UTC; in another zone, `started_at > now()` would be hours off.
        connection.execute("SET GLOBAL TimeZone = 'UTC'")
        how = "READ_ONLY" if only_read else f"ROW_GROUP_SIZE {ROWS_PER_GROUP}"
        connection.execute(f"ATTACH {sql_text(path)} AS {NAME} ({how})")
        if new:
            path.chmod(0o600)  # it holds nothing yet
        if not in_memory:
            shut_in(connection, reading)
        use(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def is_read_only(path: Path) -> bool:
    """Return whether a file exists that this process may not write, as on a read-only file system."""
    in_file = path != Path(":memory:") and path.is_file()
    return in_file and not os.access(path, os.W_OK)


def make_log_private(path: Path) -> None:
    """Give the write-ahead log, which DuckDB occasionally recreates, the mode of the file."""
    with suppress(OSError):
        path.with_name(path.name + ".wal").chmod(path.stat().st_mode & 0o777)


def shut_in(connection: duckdb.DuckDBPyConnection, reading: Sequence[Place] = ()) -> None:
    """Deny the connection's SQL access to the network and to files, but for attached ones and `reading`.

    The file may contain a stranger's SQL.  The restriction cannot be lifted within the connection.
    """
    if reading:
        for place in reading:
            place.let_in(connection)
        roots = ", ".join(sql_text(place.root) for place in reading)
        connection.execute(f"SET allowed_directories = [{roots}]")
    connection.execute("SET enable_external_access = false")


def use(connection: duckdb.DuckDBPyConnection) -> None:
    """Make the file the default database of a connection or cursor."""
    connection.execute(f"USE {NAME}")


def open_when_free(path: Path, reading: Sequence[Place] = ()) -> duckdb.DuckDBPyConnection:
    """Reopen a file that was just closed; wait for a process that opened it in between."""
    give_up_at = time.monotonic() + HELD_SECONDS
    warned = False
    while True:
        try:
            return open_file(path, reading)
        except StoreHeldError as error:
            if time.monotonic() >= give_up_at:
                raise
            if not warned:
                _LOG.warning("%s; waiting for it for up to %.0f s", error, HELD_SECONDS)
                warned = True
            time.sleep(0.05)


def _refuse_other_kinds(path: Path) -> None:
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; expected a DuckDB file")
    if path.exists() and not path.is_file():  # opening a pipe would block forever
        raise StoreError(f"{path}: is a pipe or device; expected a DuckDB file")


def open_file(path: Path, reading: Sequence[Place] = ()) -> duckdb.DuckDBPyConnection:
    """Open or create a file whose SQL may use files of the places `reading` and no others.

    A file that may not be written is opened for reading.  Raises StoreError if it cannot be used,
    StoreHeldError if another process holds it.
    """
    if path != Path(":memory:"):
        _refuse_other_kinds(path)
    text, trouble = "", None
    for keep in (True, False, False):
        try:
            return _attached(path, reading)
        except duckdb.Error as error:
            text, trouble = str(error), explained(error, path)
        except OSError as error:
            text, trouble = str(error), None
        notice = None if is_read_only(path) else set_log_aside(path, text, keep=keep)
        if notice is None:
            break
        _LOG.warning("%s", notice)
    if trouble is not None:
        raise StoreError(str(trouble))
    if "lock" in text.lower():
        holder = text.partition("PID ")[2].split(")")[0].split(" ")[0].strip(".")
        who = f" (process {holder})" if holder.isdigit() else ""
        raise StoreHeldError(
            f"{path}: open in another process{who}; DuckDB allows one process at a time: stop it, or read a"
            " copy of the file"
        )
    if not path.parent.exists():
        raise StoreError(f"{path}: the folder {path.parent} does not exist; create it first")
    first = text.splitlines()[0] if text else "unknown reason"
    raise StoreError(f"{path}: cannot be opened ({first}); check permissions and the path")
