"""SQL conditions of users: a single expression over the columns of a view, and nothing more."""

from collections.abc import Iterable
from typing import Final

import duckdb
import orjson

from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.errors import InputError

VIEW: Final = "curation_turns"
"""The documented view for conditions: a row for each turn in its current state."""


def check_condition(store: StoreReader, where: str, *, name: str = "--where") -> None:
    """Raise InputError for anything but a condition over the columns of `curation_turns`.

    Subqueries are rejected: a condition could use them to read other tables and files.
    """
    columns = store.column(f"DESCRIBE {VIEW}")
    # Alone, it must not close a bracket that it has not opened; in brackets, it must be an
    # expression.
    for written in (f"SELECT 1 WHERE\n{where}\n", f"SELECT 1 WHERE (\n{where}\n)"):
        tree = duckdb.execute("SELECT json_serialize_sql($sql)", {"sql": written}).fetchall()[0][0]
        parsed = orjson.loads(tree)
        if parsed.get("error"):
            why = str(parsed.get("error_message", "no condition")).splitlines()[0]
            raise _wrong(name, where, why, columns)
    statements = parsed["statements"]
    if len(statements) != 1 or _holds_query(statements[0]["node"], top=True):
        raise _wrong(name, where, "a query within it", columns)
    try:
        store.rows(f"SELECT 1 FROM {VIEW} WHERE (\n{where}\n) LIMIT 0")
    except duckdb.Error as error:
        raise _wrong(name, where, str(error).splitlines()[0], columns) from None


def _holds_query(node: object, *, top: bool = False) -> bool:
    if isinstance(node, list):
        return any(map(_holds_query, node))
    if not isinstance(node, dict):
        return False
    # The node of the whole statement is the only expected query.
    if not top and (node.get("class") == "SUBQUERY" or node.get("type") == "SELECT_NODE"):
        return True
    return any(_holds_query(value) for value in node.values())


def _wrong(name: str, where: str, why: str, columns: Iterable[str]) -> InputError:
    return InputError(
        f"{name} {where}: {why}; expected one SQL condition over {', '.join(columns)}"
    )
