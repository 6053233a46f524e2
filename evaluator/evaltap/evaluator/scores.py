"""Writing scores: staged rows first, then one statement that completes and de-duplicates them.

A row is staged with what differs from case to case; the run's metrics, the ids (hashes of their
inputs) and the check "is it there already?" are added by SQL, for the whole batch at once.
"""

from collections.abc import Iterable

from evaltap.evaluator.rows import ScoreRows
from evaltap.evaluator.runs import Run
from evaltap.evaluator.store import Row, Store, sql, utc_now

_STAGING = """
CREATE OR REPLACE TEMP TABLE staged_scores (
  app_name VARCHAR, eval_set_id VARCHAR, eval_id VARCHAR, revision INTEGER, metric_index INTEGER,
  score DOUBLE, status VARCHAR, reason VARCHAR, turn_count INTEGER
);
CREATE OR REPLACE TEMP TABLE staged_turn_scores (
  app_name VARCHAR, eval_set_id VARCHAR, eval_id VARCHAR, turn_key VARCHAR, invocation_id VARCHAR,
  turn_index INTEGER, turn_revision INTEGER, metric_index INTEGER, score DOUBLE, status VARCHAR,
  reason VARCHAR
)
"""


_UNLESS_THERE = """
WHERE NOT EXISTS (FROM {table} old WHERE old.run_id = $run_id AND old.score_id = id)
"""


class ScoreWriter:
    """Writes the scores of one run; one transaction a batch."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        # A run over files is written once; the others meet what they, or a killed run, wrote before.
        self._unless_there = "" if run.kind == "files" else _UNLESS_THERE

    def write(self, rows: ScoreRows) -> None:
        """Store a batch; rows that the run has already are left as they are."""
        parameters = {"run_id": self._run.run_id, "now": utc_now()}
        with self._store.transaction():
            self._store.execute(_STAGING)
            self._append("staged_scores", rows.scores)
            self._append("staged_turn_scores", rows.turn_scores)
            for table in ("scores", "turn_scores"):
                insert = sql(f"insert_{table}") + self._unless_there.format(table=table)
                self._store.execute(insert, parameters)
            run_id, now = self._run.run_id, parameters["now"]
            # Columns that came later stand behind the time of scoring.
            votes = [(run_id, *vote[:-3], now, *vote[-3:]) for vote in rows.votes]
            self._append("rubric_votes", votes)
            self._append("judge_calls", [(run_id, *call, now) for call in rows.calls])

    def _append(self, table: str, rows: Iterable[Row]) -> None:
        if rows:
            self._store.append(table, rows)
