"""What a DuckDB file may contain besides rows: evaltap's own tables and views, and no functions.

Views and functions are SQL of the file's author, which runs when somebody reads the file.  The file may
come from anybody, so whatever would run instead of our own SQL is rejected or replaced.
"""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import NamedTuple

import duckdb

from evaltap.evaluator.store.errors import StoreError
from evaltap.evaluator.store.results_folder import FOLDER_KEY, RESULT_TABLES


class Contents(NamedTuple):
    """The tables of a file, and its views with their SQL."""

    tables: frozenset[str]
    views: Mapping[str, str]


def contents_of(connection: duckdb.DuckDBPyConnection) -> Contents:
    """Return what the current database holds."""
    tables = connection.execute(_TABLES).fetchall()
    views = connection.execute(_VIEWS).fetchall()
    return Contents(
        frozenset(name for (name,) in tables), {name: _ordered(text) for name, text in views}
    )


def _ordered(view: str) -> str:
    """Return the SQL of a view with the names of each EXCLUDE sorted.

    DuckDB keeps them as a set and prints them in another order each time that it reads the file.
    """
    return _EXCLUDED.sub(lambda found: f"EXCLUDE ({', '.join(sorted(found[1].split(', ')))})", view)


def refuse_strange(
    connection: duckdb.DuckDBPyConnection, path: Path, found: Contents, tables: Collection[str]
) -> None:
    """Raise StoreError for a file that is none of evaltap's, or only looks like one.

    Views in the places of tables are SQL that would run; only those over a folder of results may be one,
    and they are recreated.
    """
    replaced = found.views.keys() & {*tables}
    if "meta" not in found.tables | replaced:
        named = ", ".join(sorted({*found.tables, *found.views}))
        raise StoreError(
            f"{path}: a DuckDB file, but not evaltap's (tables: {named}); name another file"
        )
    if "meta" in found.tables and connection.execute(_READS_FOLDER, [FOLDER_KEY]).fetchall():
        replaced -= {*RESULT_TABLES}
    if replaced:
        raise StoreError(
            f"{path}: {', '.join(sorted(replaced))} is a view in it, and a table in every file that evaltap"
            " writes; somebody made it to look like one: do not trust it"
        )
    if functions := connection.execute(_FUNCTIONS).fetchall():
        raise StoreError(
            f"{path}: contains functions ({', '.join(name for (name,) in functions[:5])}), which evaltap"
            " never creates; drop them if they are yours, otherwise do not trust the file"
        )


_EXCLUDED = re.compile(r"EXCLUDE \(([^()]*)\)")
_READS_FOLDER = "SELECT value FROM meta WHERE key = ?"
# By their full names: a function in the file could have the short one.
_TABLES = """
SELECT table_name FROM system.main.duckdb_tables() WHERE database_name = current_database() AND NOT internal
"""
_VIEWS = """
SELECT view_name, sql FROM system.main.duckdb_views()
WHERE database_name = current_database() AND NOT internal
"""
_FUNCTIONS = """
SELECT DISTINCT function_name FROM system.main.duckdb_functions()
WHERE database_name = current_database() ORDER BY ALL
"""
