"""The extent of the summaries, and whether a reader may use them instead of the rows."""

from datetime import datetime
from typing import Final, NamedTuple

from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader

NEVER: Final = datetime(1, 1, 1)


class Marks(NamedTuple):
    """The extent of the summaries, in the values that identify new rows of each table."""

    landed_seq: int = 0
    scored_at: datetime = NEVER
    feedback_at: datetime = NEVER
    reviewed_at: datetime = NEVER
    decided_at: datetime = NEVER


def read_marks(reader: StoreReader) -> Marks | None:
    """Return the extent of the summaries; None before they are built."""
    rows = reader.rows(f"SELECT {_FIELDS} FROM page_marks WHERE name = 'summaries'")
    return Marks(*rows[0]) if rows else None


def newest_rows(reader: StoreReader) -> Marks:
    """Return the extent of the rows."""
    (row,) = reader.rows(_NEWEST, {"never": NEVER})
    return Marks(*row)


def current_marks(reader: StoreReader) -> Marks | None:
    """Return the extent of the summaries if they match the rows, otherwise None.

    If another thread maintains them, they may lag behind the rows by a moment.
    """
    rows = reader.rows(f"SELECT {_FIELDS}, {_KEPT} FROM page_marks WHERE name = 'summaries'")
    if not rows:
        return None
    *values, kept = rows[0]
    marks = Marks(*values)
    return (
        marks if (kept and not isinstance(reader, Store)) or marks == newest_rows(reader) else None
    )


_NEWEST: Final = """
SELECT coalesce((SELECT max(landed_seq) FROM turns), 0),
       greatest($never, (SELECT max(scored_at) FROM scores), (SELECT max(scored_at) FROM turn_scores)),
       greatest($never, (SELECT max(landed_at) FROM feedback)),
       greatest($never, (SELECT max(reviewed_at) FROM reviews)),
       greatest($never, (SELECT max(decided_at) FROM sampling_decisions))
"""

_FIELDS: Final = ", ".join(Marks._fields)
_KEPT: Final = "written_at > now() AT TIME ZONE 'UTC' - INTERVAL 1 MINUTE"


def key_of_case(app_name: str, eval_set_id: str, eval_id: str) -> str:
    """Return SQL for the `case_key` of a case, of SQL for its names."""
    return f"md5_number_lower(concat_ws(chr(31), {app_name}, {eval_set_id}, {eval_id}))"


CASE_KEY: Final = key_of_case("app_name", "eval_set_id", "eval_id")
"""The `case_key` of a row that names a case."""
