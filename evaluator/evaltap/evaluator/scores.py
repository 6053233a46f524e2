"""Writing scores: one statement for many batches, which completes and de-duplicates their rows.

A row comes with what differs from case to case; the run's metrics, the ids (hashes of their
inputs) and the check "is it there already?" are added by SQL, for the whole batch at once.
"""

from collections.abc import Mapping, Sequence

from evaltap.evaluator.columns import ArrowTable
from evaltap.evaluator.pending import OLDEST, Begin
from evaltap.evaluator.rows import SCORE_COLUMNS, TURN_SCORE_COLUMNS, PackedRows
from evaltap.evaluator.runs import Run
from evaltap.evaluator.store import Row, Store, sql

_UNLESS_THERE = """
WHERE NOT EXISTS (
  FROM {table} old WHERE old.run_id = $run_id AND old.score_id = id AND old.scored_at >= $since
)
"""


class ScoreWriter:
    """Writes the scores of one run; one transaction a batch."""

    def __init__(self, store: Store, run: Run) -> None:
        self._store = store
        self._run = run
        # A run over files is written once; the others meet what they, or a killed run, wrote before.
        self._unless_there = "" if run.kind == "files" else _UNLESS_THERE

    def write(
        self,
        batches: Sequence[PackedRows],
        *,
        since: Begin = OLDEST,
        beside: Mapping[str, Sequence[Row]] | None = None,
    ) -> None:
        """Store batches as one; rows that the run has already are left as they are.

        `since`: the cases begin there, so that no older row need be looked at.  `beside` are rows of
        other tables that go into the same transaction, without the time of writing, which is last.
        """
        run_id, now = self._run.run_id, self._store.now()
        parameters = {"run_id": run_id, "now": now}
        if self._unless_there:
            parameters["since"] = since.landed_at
        staged = {
            "scores": ArrowTable(SCORE_COLUMNS, [batch.scores for batch in batches]),
            "turn_scores": ArrowTable(TURN_SCORE_COLUMNS, [batch.turn_scores for batch in batches]),
        }
        with self._store.transaction():
            for table, arrow in staged.items():
                insert = sql(f"insert_{table}") + self._unless_there.format(table=table)
                with self._store.showing(f"staged_{table}", arrow):
                    self._store.execute(insert, parameters)
            # Columns that came later stand behind the time of scoring.
            votes = (vote for batch in batches for vote in batch.votes)
            self._append("rubric_votes", [(run_id, *vote[:-3], now, *vote[-3:]) for vote in votes])
            calls = (call for batch in batches for call in batch.calls)
            self._append("judge_calls", [(run_id, *call, now) for call in calls])
            for table, rows in (beside or {}).items():
                self._append(table, [(*row, now) for row in rows])

    def _append(self, table: str, rows: Sequence[Row]) -> None:
        if rows:
            self._store.append(table, rows)
