"""Results as Parquet files, with a folder for each part of a run, and a DuckDB file that reads them.

In such a DuckDB file, the tables of results are views over the Parquet files of all runs in a folder.  Other
views and reports need not know about it.
"""

import shutil
import tempfile
from pathlib import Path

from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import StoreError
from evaltap.evaluator.store.queries import StoreReader, sql_text
from evaltap.evaluator.store.results_folder import FOLDER_KEY, RESULT_TABLES


def write_part(store: Store, folder: Path, number: int) -> None:
    """Move the rows of the store's results to a part's folder, atomically.

    An existing part is kept: the part was scored twice because its node seemed dead.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    unfinished = Path(tempfile.mkdtemp(prefix=f".part-{number:06}-", dir=folder))
    for table in RESULT_TABLES:
        target = sql_text(unfinished / f"{table}.parquet")
        store.execute(f"COPY {table} TO {target} (FORMAT parquet, COMPRESSION zstd)")
        (unfinished / f"{table}.parquet").chmod(0o600)
        store.execute(f"DELETE FROM {table}")
    part = folder / f"part-{number:06}"
    try:
        unfinished.rename(part)
    except OSError:
        shutil.rmtree(unfinished)
        if not part.is_dir():
            raise


def drop_unfinished(folder: Path) -> None:
    """Delete the unfinished parts of dead workers."""
    for left in folder.glob(".part-*"):
        if left.is_dir():
            shutil.rmtree(left, ignore_errors=True)
        else:
            left.unlink(missing_ok=True)


def read_results_from(store: Store, folder: Path) -> None:
    """Replace the store's tables of results by views over the runs in `folder`.

    Raises StoreError if the tables contain rows or are views over another folder.
    """
    read = results_folder(store)
    if read == folder:
        return
    if read is not None:
        raise StoreError(f"{store.path}: reads its results from {read}; name another file")
    if any(store.rows(f"SELECT 1 FROM {table} LIMIT 1") for table in RESULT_TABLES):
        raise StoreError(
            f"{store.path}: already contains other scores; name a new file for those in {folder}"
        )
    with Store(":memory:") as empty:
        # An empty part gives the views their columns before the first run ends.
        write_part(empty, folder / "layout", 0)
    store.read_results_from(folder)


def results_folder(store: StoreReader) -> Path | None:
    """Return the folder of Parquet files from which a store reads its results; None without one."""
    found = store.rows("SELECT value FROM meta WHERE key = ?", [FOLDER_KEY])
    return Path(found[0][0]) if found else None
