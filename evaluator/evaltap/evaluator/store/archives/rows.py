"""What of a store is archived: its tables, the day of a row, and the hash by which rows are compared."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from evaltap.evaluator.store.queries import StoreReader
from evaltap.evaluator.store.results_folder import FOLDER_KEY, WORD_KEY
from evaltap.evaluator.store.rewriting import DUE_KEY, PRUNED_KEY

DATED: Final[Mapping[str, str | None]] = {
    "cases": "landed_at",
    "turns": "coalesce(started_at, landed_at)",
    "tool_calls": None,
    "feedback": "given_at",
    "review_items": "added_at",
    "reviews": "reviewed_at",
    "scores": "scored_at",
    "turn_scores": "scored_at",
    "rubric_votes": "scored_at",
    "judge_calls": "scored_at",
    "curated_cases": "scored_at",
    "sampling_decisions": "decided_at",
    "gate_results": "judged_at",
    "gate_dimensions": "judged_at",
    "dead_letters": "landed_at",
    "units": "written_at",
    "recorded_sessions": "written_at",
}
"""The tables that grow with the traffic, and the time by which a row belongs to a day: of a call, that of its
turn.  Their rows never change, and an archive keeps them when the store loses them."""

UNDATED: Final = ("runs", "run_metrics", "run_ends", "gate_runs", "reference_cases", "experiments")
"""The tables that the rows above refer to; kept likewise, but not by day."""

COPIED: Final = (
    "meta",
    "offsets",
    "read_traces",
    "manifests",
    "consumed_ranges",
    "erasures",
    "outbox",
    "changes",
    "alerts",
    "alert_cases",
    "alert_deliveries",
    "watch_starts",
    "watch_states",
)
"""Tables of which an archive has the rows that the store had last."""

SUMMARIES: Final = (
    "case_index",
    "page_marks",
    *(
        f"{name}_by_{unit}"
        for name in ("turns", "scores", "latency", "tools", "left_out")
        for unit in ("minute", "hour")
    ),
)
"""Tables that are computed from the others, and not archived."""

_OF_THE_FILE: Final = ("schema_version", FOLDER_KEY, WORD_KEY, DUE_KEY, PRUNED_KEY)
"""Keys of `meta` that describe the DuckDB file itself."""

Kinds = Mapping[str, str]
"""DuckDB's types of the columns of a table, by name."""


def kinds_of(reader: StoreReader, table: str) -> Kinds:
    return {name: kind for name, kind, *_ in reader.rows(f"DESCRIBE {table}")}


def row_hash(kinds: Kinds) -> str:
    """Return SQL for the hash of a row: of the names and values of its columns that are not NULL.

    So it stays the same when a later layout adds columns, and under every version of DuckDB.
    """
    texts = (
        f"CASE WHEN {name} IS NOT NULL THEN chr(31) || '{name}=' END, {_text(name, kinds[name])}"
        for name in sorted(kinds)
    )
    return f"md5_number_lower(concat({', '.join(texts)}))"


def _text(name: str, kind: str) -> str:
    if kind == "BLOB":
        return f"hex({name})"
    if kind == "TIMESTAMP":
        return f"epoch_us({name})"
    return f"to_json({name})::VARCHAR" if kind.endswith("[]") else f"{name}::VARCHAR"


@contextmanager
def dated(store: StoreReader, table: str) -> Iterator[str]:
    """Yield a query for the rows of a table and three more columns: `day`, `hashed`, its hash, and `place`.

    The place grows in the order of writing, for tables that would otherwise be read as a whole for each day.

    Leaves out what describes the file itself, and the cases of an experiment's units that go on: such units
    are made again after an interruption, and their rows change.
    """
    hashed = row_hash(kinds_of(store, table))
    if table in DATED and (when := DATED[table]) is not None:
        place = "rowid" if table == "turns" else "0"
        yield (
            f"(SELECT *, ({when})::DATE AS day, {hashed} AS hashed, {place} AS place"
            f" FROM {table}{_settled(store, table)})"
        )
    elif table in DATED:
        with store.scratch(_DAYS_OF_CALLS) as days:
            yield (
                f"(SELECT t.*, days.day, {hashed} AS hashed, days.place FROM {table} t"
                f" JOIN {days} days ON t.rowid = days.place{_settled(store, table)})"
            )
    else:
        where = f" WHERE key NOT IN {_OF_THE_FILE}" if table == "meta" else ""
        yield f"(SELECT *, NULL::DATE AS day, {hashed} AS hashed, 0 AS place FROM {table}{where})"


def _settled(store: StoreReader, table: str) -> str:
    if table in ("dead_letters", "recorded_sessions", "units") or not store.rows(
        f"{_GOING_ON} LIMIT 1"
    ):
        return ""
    return f" WHERE (app_name, eval_set_id, eval_id) NOT IN ({_GOING_ON})"


_GOING_ON: Final = """
SELECT (app_name, eval_set_id, eval_id) FROM (
  FROM units QUALIFY row_number() OVER (
    PARTITION BY experiment_id, app_name, eval_set_id, eval_id, trial ORDER BY written_at DESC
  ) = 1
)
WHERE state IN ('begun', 'ran') AND written_at > now() AT TIME ZONE 'UTC' - INTERVAL 1 DAY
"""

_DAYS_OF_CALLS: Final = f"""
SELECT c.rowid AS place, coalesce(max(t.day), max(c.started_at)::DATE) AS day
FROM tool_calls c
LEFT JOIN (
  SELECT hash(app_name, eval_set_id, eval_id, invocation_id, turn_revision) AS turn,
         ({DATED["turns"]})::DATE AS day
  FROM turns
) t ON t.turn = hash(c.app_name, c.eval_set_id, c.eval_id, c.invocation_id, c.turn_revision)
GROUP BY c.rowid
"""
