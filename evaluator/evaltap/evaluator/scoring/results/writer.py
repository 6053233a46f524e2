"""Write scores: one statement completes and deduplicates the rows of many batches.

Rows hold only what differs between cases.  For the whole batch at once, SQL adds the run's metrics and the
ids (hashes of their inputs), and skips rows that are already stored.
"""

from collections.abc import Sequence
from datetime import datetime

from evaltap.evaluator.cases.identity import OLDEST, FirstPosition, is_about
from evaltap.evaluator.scoring.results.rows import (
    SCORE_COLUMNS,
    TURN_SCORE_COLUMNS,
    CallRow,
    CuratedCaseRow,
    PackedRows,
    VoteRow,
)
from evaltap.evaluator.scoring.results.runs import Run
from evaltap.evaluator.store.arrow import ArrowTable
from evaltap.evaluator.store.database import Store, sql

_UNLESS_THERE = """
WHERE NOT EXISTS (
  FROM {table} old WHERE old.run_id = $run_id AND old.score_id = id AND old.scored_at >= $since
)
"""

_UNLESS_LEFT_OUT = """{joined} NOT EXISTS (
  FROM latest_decisions d
  WHERE d.app_name = staged.app_name AND d.eval_set_id = staged.eval_set_id
    AND d.eval_id = staged.eval_id AND d.invocation_id = staged.invocation_id
    AND d.turn_revision = staged.turn_revision AND d.metric_digest = staged.metric_digest
    AND d.decision <> 'score'
)
"""


_ANSWERED = f""", (
  SELECT max(f.landed_at)::VARCHAR FROM feedback f WHERE {is_about("f", "s")} {{of_turn}}
)"""


# Feedback on a trace or a session may be about any turn.
_OF_TURN = "AND coalesce(f.invocation_id, s.invocation_id) = s.invocation_id"


class ScoreWriter:
    """Writes the scores of a run, with a transaction for each batch.

    With `sampled`, turns that a rule has left out get no rows.  With `answered`, scores may differ once
    feedback has landed, and then have new rows.
    """

    def __init__(
        self, store: Store, run: Run, *, sampled: bool = False, answered: bool = False
    ) -> None:
        self._sampled = sampled
        self._answered = _ANSWERED if answered else ""
        self._store = store
        self._run = run
        # A run over files is written once.  Other runs may find their own earlier rows, or a killed run's.
        self._unless_there = "" if run.kind == "files" else _UNLESS_THERE

    def write(self, batches: Sequence[PackedRows], *, since: FirstPosition = OLDEST) -> None:
        """Store batches in one transaction; rows that the run already has are not changed.

        `since` is the first position of the cases: older rows need not be checked.
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
                answered = self._answered.format(of_turn=_OF_TURN if table == "turn_scores" else "")
                insert = sql(__name__, f"insert_{table}").format(answered=answered)
                insert += self._unless_there.format(table=table)
                if self._sampled and table == "turn_scores":
                    insert += _UNLESS_LEFT_OUT.format(
                        joined="AND" if self._unless_there else "WHERE"
                    )
                with self._store.registered(f"staged_{table}", arrow):
                    self._store.execute(insert, parameters)
            self._append("rubric_votes", [vote for batch in batches for vote in batch.votes], now)
            self._append("judge_calls", [call for batch in batches for call in batch.calls], now)
            self._append("curated_cases", [one for batch in batches for one in batch.curated], now)

    def _append(
        self, table: str, rows: Sequence[VoteRow | CallRow | CuratedCaseRow], now: datetime
    ) -> None:
        for row in rows:
            row.run_id, row.scored_at = self._run.run_id, now
        if rows:
            self._store.append(table, rows)
