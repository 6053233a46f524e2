"""Telling a DuckDB file from others without loading DuckDB."""

from pathlib import Path
from typing import Final

from evaltap.evaluator.store.held import is_held_here
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.magic_numbers import HEAD_BYTES, is_duckdb

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
    if is_held_here(path):
        return True
    try:
        with path.open("rb") as file:
            return is_duckdb(file.read(HEAD_BYTES))
    except (FileNotFoundError, IsADirectoryError):
        return False
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None


def is_store(path: Path) -> bool:
    """Tell whether a path can be read as a store: a DuckDB database or an archive."""
    return is_archive(path) or is_database(path)


def not_a_store(path: Path) -> str:
    """Return the message about a file that is no DuckDB database, with the way to get one."""
    if path.suffix in (".json", ".jsonl", ".ndjson"):
        remedy = f"`evaltap score {path} --metrics M.json --db X.duckdb` makes one from cases"
    else:
        remedy = "name another one"
    return f"{path}: not a DuckDB file; {remedy}"
