"""Telling a DuckDB file from others without loading DuckDB."""

from pathlib import Path

from evaltap.evaluator.store.held import is_held_here
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.magic_numbers import HEAD_BYTES, is_duckdb


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


def not_a_store(path: Path) -> str:
    """Return the message about a file that is no DuckDB database, with the way to get one."""
    if path.suffix in (".json", ".jsonl", ".ndjson"):
        remedy = f"`evaltap score {path} --metrics M.json --db X.duckdb` makes one from cases"
    else:
        remedy = "name another one"
    return f"{path}: not a DuckDB file; {remedy}"
