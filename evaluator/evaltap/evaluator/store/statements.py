"""Statements that only read: what a reader may run on a store that another thread or process writes."""

import re
from collections.abc import Iterator
from functools import cache, lru_cache
from threading import Lock
from typing import Any, Final

import duckdb
import orjson

from evaltap.evaluator.store.errors import NotReadingError

_SPACE: Final = r"(?:\s|--[^\n]*(?:\n|$)|/\*.*?\*/)"
_NAME: Final = r'(?:\w+|"[^"]+")(?:\.(?:\w+|"[^"]+"))?'
_WRAPPED: Final = re.compile(
    f"{_SPACE}*(?:EXPLAIN{_SPACE}+(?:ANALYZE{_SPACE}+)?"
    f"|CREATE{_SPACE}+(?:OR{_SPACE}+REPLACE{_SPACE}+)?TEMP{_SPACE}+(?:TABLE|VIEW){_SPACE}+{_NAME}{_SPACE}+AS\\b"
    f"|INSERT{_SPACE}+INTO{_SPACE}+{_NAME}{_SPACE})(?P<query>.*)",
    re.IGNORECASE | re.DOTALL,
)
"""Statements around a query: what follows must be one when it is parsed alone.  A read-only transaction, in
which all of this runs, refuses to change anything but temporary tables."""
_PLAIN: Final = re.compile(
    rf"\s*(?:CREATE\s+(?:OR\s+REPLACE\s+)?TEMP\s+TABLE\s+{_NAME}\s*\(\s*\w+\s+\w+(?:\s*,\s*\w+\s+\w+)*\s*\)"
    rf"|DROP\s+(?:TABLE|VIEW)\s+(?:IF\s+EXISTS\s+)?{_NAME})\s*",
    re.IGNORECASE,
)
"""Statements without a query."""
_SOURCES: Final = frozenset(
    ["duckdb_columns", "duckdb_constraints", "duckdb_databases", "duckdb_dependencies",
     "duckdb_extensions", "duckdb_functions", "duckdb_indexes", "duckdb_keywords", "duckdb_memory",
     "duckdb_optimizers", "duckdb_schemas", "duckdb_sequences", "duckdb_settings", "duckdb_tables",
     "duckdb_temporary_files", "duckdb_types", "duckdb_variables", "duckdb_views", "generate_series",
     "histogram", "histogram_values", "json_each", "json_tree", "pg_timezone_names",
     "pragma_database_size", "pragma_show", "pragma_storage_info", "pragma_table_info",
     "pragma_version", "range", "repeat_row", "summary", "unnest"]
)  # fmt: skip
"""Functions to select from.  There are others that change the process, open files or run a text."""
_CHANGING: Final = frozenset(
    ["getenv", "json_execute_serialized_sql", "nextval", "query", "query_table", "setval", "sleep_ms",
     "write_log"]
)  # fmt: skip
"""Functions within expressions that do more than compute."""

_PARSING: Final = Lock()


@lru_cache(1_024)
def refuse_other(statements: str) -> None:
    """Raise NotReadingError for statements that do more than read and fill temporary tables.

    They must still run in a read-only transaction, which protects the file.  This function protects settings,
    other files and other databases.
    """
    for statement in duckdb.extract_statements(statements):
        text = statement.query
        if statement.type != duckdb.StatementType.SELECT:
            if _PLAIN.fullmatch(text):
                continue
            if (wrapped := _WRAPPED.fullmatch(text)) is None:
                raise _not_reading(text, statement.type.name)
            text = wrapped["query"]
        if (tree := _parsed(text)) is None:
            raise _not_reading(statement.query, statement.type.name)
        for name, is_source in _functions(tree):
            if is_source and name not in _SOURCES:
                raise NotReadingError(
                    f"{name}: not one of the functions to select from; expected a table, a view or one"
                    " like range, unnest and json_each"
                )
            if name in _CHANGING:
                raise NotReadingError(
                    f"{name}: a function that does more than it reads; leave it out"
                )


def _not_reading(statement: str, kind: str) -> NotReadingError:
    shown = re.sub(r"\s+", " ", statement.strip())[:80]
    return NotReadingError(
        f"{shown}: a {kind} statement; expected one that reads, such as SELECT or FROM"
    )


@cache
def _parser() -> duckdb.DuckDBPyConnection:
    """Return a connection that only parses; DuckDB has no other way to a parse tree."""
    return duckdb.connect(config={"threads": 1, "enable_external_access": False})


def _parsed(query: str) -> Any:
    """Return the parse tree of one query, None if it is anything else."""
    with _PARSING:
        found = _parser().execute("SELECT json_serialize_sql(?)", [query]).fetchone()
    assert found is not None
    parsed = orjson.loads(found[0])
    return None if parsed["error"] or len(parsed["statements"]) != 1 else parsed["statements"][0]


def _functions(tree: Any) -> Iterator[tuple[str, bool]]:
    """Yield the name of each function called, and whether its result is selected from."""
    left = [(tree, False)]
    while left:
        node, is_source = left.pop()
        if isinstance(node, list):
            left += [(item, False) for item in node]
        elif isinstance(node, dict):
            if "function_name" in node:
                yield node["function_name"].lower(), is_source
            sources = node.get("type") == "TABLE_FUNCTION"
            left += [(value, sources and key == "function") for key, value in node.items()]
