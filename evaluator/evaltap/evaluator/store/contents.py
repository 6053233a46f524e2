"""Check the tables, views, functions and triggers of a DuckDB file.

Views, functions and triggers are SQL by the file's author that runs when the file is read or written.  The
file may come from a stranger, so anything that would run beside our own SQL or in its place is rejected or
replaced.
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
    """Return the tables and views of the current database."""
    tables = connection.execute(_TABLES).fetchall()
    views = connection.execute(_VIEWS).fetchall()
    return Contents(
        frozenset(name for (name,) in tables), {name: _ordered(text) for name, text in views}
    )


def _ordered(view: str) -> str:
    """Return the SQL of a view with the names of each EXCLUDE sorted.

    DuckDB keeps them as a set and prints them in a different order each time it reads the file.
    """
    return _EXCLUDED.sub(lambda found: f"EXCLUDE ({', '.join(sorted(found[1].split(', ')))})", view)


def refuse_strange(
    connection: duckdb.DuckDBPyConnection, path: Path, found: Contents, tables: Collection[str]
) -> None:
    """Raise StoreError for a file that is not evaltap's, or only looks like it.

    A view with the name of a table is rejected, since its SQL would run.  Only the tables of results may be
    views, over a folder, and those are recreated.
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
            f"{path}: {', '.join(sorted(replaced))} is a view in this file but a table in every file that"
            " evaltap writes; the file imitates one of evaltap's: do not trust it"
        )
    for kind, listed in (("functions", _FUNCTIONS), ("triggers", _TRIGGERS)):
        if names := connection.execute(listed).fetchall():
            raise StoreError(
                f"{path}: contains {kind} ({', '.join(name for (name,) in names[:5])}), which evaltap"
                " never creates; drop them if they are yours, otherwise do not trust the file"
            )


_EXCLUDED = re.compile(r"EXCLUDE \(([^()]*)\)")
_READS_FOLDER = "SELECT value FROM meta WHERE key = ?"
# Qualified names, since a function in the file could shadow the short ones.
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
_TRIGGERS = """
SELECT DISTINCT trigger_name FROM system.main.duckdb_triggers()
WHERE database_name = current_database() ORDER BY ALL
"""
