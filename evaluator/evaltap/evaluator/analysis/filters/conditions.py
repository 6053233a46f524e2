"""SQL conditions of users: a single expression over the columns of a view, and nothing more."""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

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


class _Joined(NamedTuple):
    """The columns that a join adds."""

    columns: tuple[tuple[str, str], ...]
    join: str


_TURN: Final = "(app_name, eval_set_id, eval_id, invocation_id)"
_REVISION: Final = "(app_name, eval_set_id, eval_id, invocation_id, turn_revision)"

_JOINED: Final = (
    _Joined(
        (
            ("tools", "coalesce(k.tools, [])"),
            ("tool_path", "array_to_string(coalesce(k.tools, []), ' > ')"),
            ("failed_calls", "coalesce(k.failed_calls, 0)"),
        ),
        f"LEFT JOIN v_turn_tools k USING {_REVISION}",
    ),
    _Joined(
        (("user_id", "c.user_id"), ("service", "c.service"), ("framework", "c.framework")),
        "LEFT JOIN latest_cases c USING (app_name, eval_set_id, eval_id)",
    ),
    _Joined(
        (("complaints", "coalesce(f.complaints, 0)"), ("praises", "coalesce(f.praises, 0)")),
        f"LEFT JOIN v_turn_feedback f USING {_TURN}",
    ),
    _Joined(
        (
            ("failed_metrics", "coalesce(v.failed_metrics, [])"),
            (
                "outcome",
                "CASE WHEN t.status IN ('error', 'incomplete') OR v.failed THEN 'failed'"
                " WHEN v.passed THEN 'passed' ELSE 'unknown' END",
            ),
        ),
        f"LEFT JOIN v_turn_verdicts v USING {_REVISION}",
    ),
)


def turns_with(*texts: str) -> str:
    """Return a query for the rows of `curation_turns`, with the columns that SQL texts name.

    Columns of turns and cases, `app`, `revision` and `weight` are always included.
    """
    named = set(re.findall(r"\w+", " ".join(texts).lower()))
    columns, joins = [], []
    for one in _JOINED:
        wanted = _wanted(one.columns, named)
        if wanted:
            columns.extend(wanted)
            joins.append(one.join)
    return f"""SELECT t.app_name AS app, t.turn_revision AS revision,
      t.* EXCLUDE (turn_revision, inclusion_probability, actual_json, expected_json, event_id, seq),
      coalesce(t.inclusion_probability, 1) AS inclusion_probability,
      1 / coalesce(t.inclusion_probability, 1) AS weight
      {"".join(f", {column}" for column in columns)}
      FROM latest_turns t {" ".join(joins)}
      WHERE coalesce(t.inclusion_probability, 1) > 0"""


def _wanted(columns: Iterable[tuple[str, str]], named: set[str]) -> list[str]:
    return [f"{expression} AS {name}" for name, expression in columns if name in named]
