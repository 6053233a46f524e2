"""The view `curation_turns` with only the joins that the requested columns need.

The view joins four tables to every turn, whichever columns are read; for a million turns, that takes seconds.
A test compares both, column by column.
"""

import re
from collections.abc import Iterable
from typing import Final, NamedTuple


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
