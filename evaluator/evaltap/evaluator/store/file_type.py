"""Telling a DuckDB file from others without loading DuckDB."""

from pathlib import Path
from typing import Final

from evaltap.evaluator.store.held import is_held_here
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.refused import HEAD_BYTES, is_duckdb, is_sqlite, log_instead

MANIFEST: Final = "evaltap-archive.json"
"""The file that makes a folder or the prefix of a bucket an archive."""
UNFINISHED: Final = "evaltap-archive.unfinished.json"
"""The manifest that a run will write when it ends, with the files that it has written so far."""


def is_archive(path: Path) -> bool:
    """Tell whether a path is an archive: a folder with a manifest, or the address of a bucket."""
    return path.as_posix().startswith("s3:/") or (
        path.is_dir() and any((path / name).is_file() for name in (MANIFEST, UNFINISHED))
    )


def is_database(path: Path) -> bool:
    """Tell whether a file is a DuckDB database, by its first bytes."""
    return is_held_here(path) or is_duckdb(_head(path))


def is_log(path: Path) -> bool:
    """Tell whether a file is an SQLite database, as logs are, by its first bytes."""
    return is_sqlite(_head(path))


def _head(path: Path) -> bytes:
    """Return the first bytes of a file; empty if it does not exist."""
    try:
        with path.open("rb") as file:
            return file.read(HEAD_BYTES)
    except (FileNotFoundError, IsADirectoryError):
        return b""
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def is_store(path: Path) -> bool:
    """Tell whether a path can be read as a store: a DuckDB database or an archive."""
    return is_archive(path) or is_database(path)


def not_a_store(path: Path) -> str:
    """Return the message about a file that is no DuckDB database, with the way to get one."""
    if is_log(path):
        return log_instead(path)
    if path.suffix in (".json", ".jsonl", ".ndjson"):
        remedy = f"`evaltap score {path} --metrics M.json --db X.duckdb` makes one from cases"
    else:
        remedy = "name another one"
    return f"{path}: not a DuckDB file; {remedy}"
