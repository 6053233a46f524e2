"""A folder of Parquet files in place of a store's tables of results.

The file names the folder, but it may come from a stranger.  So the folder must also name the file, in an
entry that only evaltap on this machine writes.
"""

import secrets
from pathlib import Path
from typing import Final

import duckdb

from evaltap.evaluator.store.errors import StoreError
from evaltap.evaluator.store.queries import sql_text

RESULT_TABLES: Final = ("scores", "turn_scores", "rubric_votes", "judge_calls", "curated_cases")
FOLDER_KEY: Final = "results_folder"
WORD_KEY: Final = "results_folder_word"
_READERS: Final = "readers"


def let_read(folder: Path) -> str:
    """Store a new secret word in the folder and return it: files that contain it may read the folder."""
    word = secrets.token_hex(16)
    readers = folder / _READERS
    readers.mkdir(parents=True, exist_ok=True)
    (readers / word).touch(mode=0o600)
    return word


def trusted_folder(connection: duckdb.DuckDBPyConnection, path: Path) -> Path | None:
    """Return the folder from which a file reads its results; None if they are in its tables.

    Raises StoreError for a folder that is missing or does not know the file.
    """

    def values(key: str) -> list[str]:
        found = connection.execute("SELECT value FROM meta WHERE key = ?", [key]).fetchall()
        return [value for (value,) in found]

    for named in values(FOLDER_KEY):
        folder = Path(named)
        if not folder.is_dir():
            raise StoreError(
                f"{path}: reads its results from {folder}, which is missing; restore it"
            )
        readers = folder / _READERS
        if not any(word.isalnum() and (readers / word).is_file() for word in values(WORD_KEY)):
            raise StoreError(
                f"{path}: wants to read {folder}, which does not know this file; score again with"
                " --engine ray into a new file, or do not trust it"
            )
        return folder
    return None


def results_view(table: str, folder: Path) -> str:
    """Return the SQL that creates a table of results as a view over the folder."""
    files = sql_text(folder / "*" / "part-*" / f"{table}.parquet")
    return f"CREATE OR REPLACE VIEW {table} AS FROM read_parquet({files})"
