"""Rewrite the DuckDB file, because DuckDB neither overwrites nor frees what was deleted."""

import os
import shutil
from pathlib import Path
from typing import Any

import duckdb

from evaltap.evaluator.store.damage import translated
from evaltap.evaluator.store.database import WRITING_MEMORY, Store
from evaltap.evaluator.store.opening import ROWS_PER_GROUP, shut_in
from evaltap.evaluator.store.turn_sizes import compression, size_of_latest_turns


def rewrite_file(path: Path) -> None:
    """Copy the remaining data into a new file and replace the old one with it."""
    fresh = path.with_name(path.name + ".erasing")
    for leftover in (fresh, fresh.with_name(fresh.name + ".wal")):
        leftover.unlink(missing_ok=True)
    with Store(path, create=False) as store:
        _, size = size_of_latest_turns(store)
    megabytes = size >> 20
    # Each thread would fill a row group in memory.
    settings: dict[str, Any] = {"temp_directory": f"{path}.tmp", "threads": 1}
    with translated(path), duckdb.connect(":memory:", config=settings) as connection:
        old, new = (str(one).replace("'", "''") for one in (path, fresh))
        connection.execute(f"ATTACH '{old}' AS old (READ_ONLY)")
        connection.execute(f"ATTACH '{new}' AS new (ROW_GROUP_SIZE {ROWS_PER_GROUP})")
        shutil.copymode(path, fresh)
        shut_in(connection)
        connection.execute(f"SET memory_limit = '{max(WRITING_MEMORY, 2 * megabytes)}MB'")
        connection.execute(compression(megabytes))
        connection.execute("COPY FROM DATABASE old TO new")
        connection.execute("CHECKPOINT new")
    os.replace(fresh, path)
    path.with_name(path.name + ".wal").unlink(missing_ok=True)
