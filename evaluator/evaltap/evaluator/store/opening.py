"""Opening the DuckDB file: one process has it, damage is set aside, and what is wrong is explained."""

import logging
import time
from pathlib import Path
from typing import Any, Final

import duckdb

from evaltap.evaluator.store.damage import explained, set_log_aside
from evaltap.evaluator.store.errors import StoreError, StoreHeldError

ROWS_PER_GROUP = 4_096
"""A checkpoint rewrites the last group of a table, with all its rows, until the group is full."""
_NAME: Final = "evaltap"
"""What the file is called within the connection."""
HELD_SECONDS = 60.0
"""How long a process that came in while the file was closed for a moment may stay."""

_LOG = logging.getLogger("evaltap.store")


def _attached(path: Path) -> duckdb.DuckDBPyConnection:
    settings: dict[str, Any] = {"autoinstall_known_extensions": "false"}
    if str(path) != ":memory:":
        # What does not fit into memory is spilled beside the file, not into the working directory.
        settings["temp_directory"] = f"{path}.tmp"
    connection = duckdb.connect(config=settings)
    try:
        file = str(path).replace("'", "''")
        connection.execute(f"ATTACH '{file}' AS {_NAME} (ROW_GROUP_SIZE {ROWS_PER_GROUP})")
        use(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def use(connection: duckdb.DuckDBPyConnection) -> None:
    """Have statements of a connection or cursor mean the tables of the file."""
    connection.execute(f"USE {_NAME}")


def open_when_free(path: Path) -> duckdb.DuckDBPyConnection:
    """Open a file that was closed a moment ago; wait for another process that came in between."""
    give_up_at = time.monotonic() + HELD_SECONDS
    warned = False
    while True:
        try:
            return open_file(path)
        except StoreHeldError as error:
            if time.monotonic() >= give_up_at:
                raise
            if not warned:
                _LOG.warning("%s; waiting for it for up to %.0f s", error, HELD_SECONDS)
                warned = True
            time.sleep(0.05)


def open_file(path: Path) -> duckdb.DuckDBPyConnection:
    """Open or create a file; raise StoreError when it cannot be used, StoreHeldError when it is held."""
    text, trouble = "", None
    for keep in (True, False, False):
        try:
            return _attached(path)
        except duckdb.Error as error:
            text, trouble = str(error), explained(error, path)
        except OSError as error:
            text, trouble = str(error), None
        notice = set_log_aside(path, text, keep=keep)
        if notice is None:
            break
        _LOG.warning("%s", notice)
    if trouble is not None:
        raise StoreError(str(trouble))
    if "lock" in text.lower():
        holder = text.partition("PID ")[2].split(")")[0].split(" ")[0].strip(".")
        who = f" (process {holder})" if holder.isdigit() else ""
        raise StoreHeldError(
            f"{path}: held by another process{who}; stop it or wait, DuckDB lets one process in"
        )
    if path.is_dir():
        raise StoreError(f"{path}: is a folder; expected a DuckDB file")
    if not path.parent.exists():
        raise StoreError(f"{path}: the folder {path.parent} does not exist; make it first")
    first = text.splitlines()[0] if text else "unknown reason"
    raise StoreError(f"{path}: cannot be opened ({first}); check permissions and the path")
