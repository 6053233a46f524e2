"""Check that a reader's statements only read."""

import re
from functools import lru_cache
from typing import Final

import duckdb

from evaltap.evaluator.store.errors import NotReadingError

_KIND = duckdb.StatementType
_ALLOWED: Final = frozenset(
    {
        _KIND.SELECT,
        _KIND.EXPLAIN,
        _KIND.CREATE,
        _KIND.INSERT,
        _KIND.UPDATE,
        _KIND.DELETE,
        _KIND.DROP,
    }
)
"""In a read-only transaction, DuckDB rejects those that would change more than temporary tables."""

_NOT_ONLY_READING: Final = re.compile(
    r"\b((?:en|dis)able_\w+|(?:force_)?checkpoint|truncate_duckdb_logs|\w*_external_resource\w*"
    r'|verify_parallelism|json_execute_serialized_sql|import_database|copy_database)"?\s*\(',
    re.IGNORECASE,
)
"""Functions that change the whole process when they are selected from."""


@lru_cache(1_024)
def refuse_other(statements: str) -> None:
    """Raise NotReadingError for statements that do more than read and fill temporary tables.

    They must still run in a read-only transaction, which protects the file.  This function protects settings,
    other files and other databases.
    """
    for statement in duckdb.extract_statements(statements):
        if statement.type not in _ALLOWED:
            shown = re.sub(r"\s+", " ", statement.query.strip())[:80]
            raise NotReadingError(
                f"{shown}: a {statement.type.name} statement; expected one that reads, such as SELECT or FROM"
            )
    if found := _NOT_ONLY_READING.search(statements):
        raise NotReadingError(
            f"{found[1]}: a function that changes more than it reads; leave it out"
        )
