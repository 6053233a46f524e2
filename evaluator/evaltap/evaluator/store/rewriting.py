"""Rewrite the DuckDB file, because DuckDB neither overwrites nor frees what was deleted."""

import os
import shutil
from pathlib import Path
from typing import Any, Final

import duckdb

from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.database import WRITING_MEMORY, Store
from evaltap.evaluator.store.errors import StorageError
from evaltap.evaluator.store.opening import ROWS_PER_GROUP, shut_in
from evaltap.evaluator.store.queries import sql_text
from evaltap.evaluator.store.turn_sizes import compression, size_of_latest_turns

DUE_KEY: Final = "rewrite_due"
"""In `meta` while rows are deleted of which the file still has the bytes."""
PRUNED_KEY: Final = "pruned_before"
"""In `meta` for each pruning: until when sessions were deleted, UTC."""


def rewrite_file(path: Path) -> None:
    """Copy the remaining data into a new file and replace the old one with it.

    Raises StorageError if that fails; the old file remains, and nothing of the new one.
    """
    fresh = path.with_name(path.name + ".erasing")
    with Store(path, create=False) as store:
        _, size = size_of_latest_turns(store)
    _remove(fresh)
    try:
        _copy(path, fresh, size >> 20)
        os.replace(fresh, path)
    except StorageError as error:
        cause = str(error.__cause__).splitlines()[0]
        raise StorageError(
            f"{path}: the rows are deleted, but not their bytes, for the file cannot be rewritten ({cause});"
            " see to that, and run the command again"
        ) from error
    finally:
        _remove(fresh)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)


def _remove(fresh: Path) -> None:
    for one in (fresh, fresh.with_name(fresh.name + ".wal")):
        one.unlink(missing_ok=True)


def _copy(path: Path, fresh: Path, megabytes: int) -> None:
    # Each thread would fill a row group in memory.
    settings: dict[str, Any] = {"temp_directory": f"{path}.tmp", "threads": 1}
    with translated(path), duckdb.connect(":memory:", config=settings) as connection:
        connection.execute(f"ATTACH {sql_text(path)} AS old (READ_ONLY)")
        connection.execute(f"ATTACH {sql_text(fresh)} AS new (ROW_GROUP_SIZE {ROWS_PER_GROUP})")
        shutil.copymode(path, fresh)
        shut_in(connection)
        connection.execute(f"SET memory_limit = '{max(WRITING_MEMORY, 2 * megabytes)}MB'")
        connection.execute(compression(megabytes))
        connection.execute("COPY FROM DATABASE old TO new")
        connection.execute("DELETE FROM new.meta WHERE key = ?", [DUE_KEY])
        connection.execute("CHECKPOINT new")
