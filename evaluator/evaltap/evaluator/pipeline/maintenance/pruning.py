"""Prune a store: delete the sessions that ended before a time, with all their data.

Sessions are deleted as a whole, by their newest turn.  The proof of completeness (manifests, consumed
numbers, offsets) is retained, so pruned turns are neither reported as missing nor landed again.
"""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.pipeline.maintenance.archiving import ArchiveCheck
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import Scratch
from evaltap.evaluator.store.rewriting import DUE_KEY, PRUNED_KEY, rewrite_file
from evaltap.evaluator.store.times import stored_time


@dataclass(frozen=True, slots=True)
class Pruned:
    """The deleted sessions, and the deleted rows by table."""

    sessions: int
    rows: Mapping[str, int]
    rewritten: bool
    """Whether the file was rewritten: for these rows, or for those of a call that was interrupted."""


class _Preview(Exception):
    """Raised at the end of a dry run, to undo its deletions."""


def prune(
    path: Path, before: datetime, *, archived: Path | None = None, dry_run: bool = False
) -> Pruned:
    """Delete sessions that ended before an aware time, and rewrite the file, which frees its space.

    Rewriting temporarily needs as much free space as the file; if it is interrupted, or fails with
    StorageError, the next call does it.  `dry_run` only counts.  With `archived`, all deleted rows must be in
    that archive, whose files are read again for this.  Raises StoreError for a file that is not evaltap's or
    that another process has open, and for what is not its archive; InputError if the archive lacks rows, and
    StorageError if it is damaged: then nothing is deleted.
    """
    moment = stored_time(before)
    rows: dict[str, int] = {}
    with Store(path, create=False) as store:
        check = None if archived is None else ArchiveCheck(store, archived)
        with store.scratch(_SESSIONS, {"before": moment}) as old:
            ((sessions,),) = store.rows(f"SELECT count(*) FROM {old}")
            summaries = Summaries(store)
            with suppress(_Preview), store.transaction():
                summarised = summaries.find(f"FROM {old}", {})
                for table, condition, given in _conditions(old, moment):
                    if check is not None:
                        check.look_for(table, condition, given)
                    ((count,),) = store.rows(f"DELETE FROM {table} WHERE {condition}", given)
                    if count:
                        rows[table] = count
                if check is not None:
                    check.conclude()
                if dry_run:
                    raise _Preview
                if summarised and rows:
                    summaries.rewrite()
                if rows:
                    # What was dropped before says nothing about the traffic that remains.
                    pruned = (PRUNED_KEY, moment.isoformat(" "))
                    store.append("meta", [(DUE_KEY, "1"), pruned])
        is_due = bool(store.rows("SELECT 1 FROM meta WHERE key = $key LIMIT 1", {"key": DUE_KEY}))
    if is_due and not dry_run:
        rewrite_file(path)
    return Pruned(sessions, rows, is_due and not dry_run)


# A turn says of which day its calls are.
_OF_SESSIONS: Final = (
    "cases",
    "tool_calls",
    "turns",
    "feedback",
    "review_items",
    "reviews",
    "scores",
    "turn_scores",
    "rubric_votes",
    "judge_calls",
    "curated_cases",
    "sampling_decisions",
    "gate_results",
    "gate_dimensions",
)

_SESSIONS: Final = """
SELECT app_name, eval_set_id, eval_id
FROM (
  SELECT app_name, eval_set_id, eval_id, coalesce(started_at, landed_at) AS ended_at FROM turns
  UNION ALL
  SELECT app_name, eval_set_id, eval_id, scored_at FROM scores
  WHERE (app_name, eval_set_id, eval_id) NOT IN (SELECT (app_name, eval_set_id, eval_id) FROM cases)
)
GROUP BY ALL
HAVING max(ended_at) < $before
"""

# A live run continues as long as its consumer is started with the same metrics.
_OLD_RUNS: Final = """
run_id IN (
  SELECT run_id FROM runs WHERE kind <> 'live' AND started_at < $before
  EXCEPT SELECT run_id FROM scores
)"""

# An experiment is deleted as a whole, like its turns: its rows say what became of each.
_OLD_EXPERIMENTS: Final = """
experiment_id IN (SELECT experiment_id FROM units GROUP BY ALL HAVING max(written_at) < $before)"""


def _conditions(sessions: Scratch, before: datetime) -> list[tuple[str, str, dict[str, datetime]]]:
    """Return the conditions of rows to delete in each table, in an order that respects dependencies."""
    of_session = (
        "(app_name, eval_set_id, eval_id) IN"
        f" (SELECT (app_name, eval_set_id, eval_id) FROM {sessions})"
    )
    found: list[tuple[str, str, dict[str, datetime]]] = [
        (table, of_session, {}) for table in _OF_SESSIONS
    ]
    given = {"before": before}
    found += [
        (table, _OLD_RUNS, given) for table in ("run_metrics", "run_ends", "gate_runs", "runs")
    ]
    found += [
        (table, _OLD_EXPERIMENTS, given)
        for table in ("recorded_sessions", "experiments", "units")  # the condition reads units
    ]
    unused = (
        "references_digest NOT IN"
        " (SELECT references_digest FROM run_metrics WHERE references_digest IS NOT NULL)"
    )
    return [*found, ("reference_cases", unused, {}), ("dead_letters", "landed_at < $before", given)]
