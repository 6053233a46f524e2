"""The scoring lag: landed cases that lack a score under the metrics of the live run."""

from datetime import datetime
from typing import Final, NamedTuple

from evaltap.evaluator.store.database import utc_now
from evaltap.evaluator.store.queries import StoreReader


class Lag(NamedTuple):
    """Cases that wait for scores, and when the oldest of them landed: UTC, without a time zone."""

    cases: int
    oldest: datetime | None

    @property
    def seconds(self) -> float:
        """The age of the oldest case in seconds; 0 if none waits."""
        return 0.0 if self.oldest is None else max(0.0, (utc_now() - self.oldest).total_seconds())

    def data(self) -> dict[str, float | int]:
        return {"cases": self.cases, "oldest_seconds": round(self.seconds, 3)}


def oldest_unscored(store: StoreReader) -> Lag:
    """Return the lag under the metrics of the live run; empty if the log is only landed."""
    return Lag(*store.rows(_WAITING)[0])


# A consumer that returns to earlier metrics continues their run.
USED: Final = """
used AS (
  SELECT run_id, kind, greatest(started_at, scored_at) AS used_at
  FROM runs LEFT JOIN (
    SELECT run_id, max(scored_at) AS scored_at FROM scores GROUP BY run_id
  ) USING (run_id)
)
"""
"""A query's part: the runs, and when each was started or scored with last."""

# Turns that rules have excluded do not wait.
_WAITING: Final = f"""
WITH {USED},
wanted AS (
  SELECT metric_digest FROM run_metrics
  WHERE run_id = (SELECT run_id FROM used WHERE kind = 'live' ORDER BY used_at DESC LIMIT 1)
),
decided AS (
  SELECT app_name, eval_set_id, eval_id, metric_digest
  FROM latest_decisions GROUP BY ALL HAVING bool_and(decision <> 'score')
),
waiting AS (
  SELECT DISTINCT c.app_name, c.eval_set_id, c.eval_id, c.landed_at
  FROM latest_cases c CROSS JOIN wanted w
  LEFT JOIN scores s USING (app_name, eval_set_id, eval_id, revision, metric_digest)
  LEFT JOIN decided d USING (app_name, eval_set_id, eval_id, metric_digest)
  WHERE s.score_id IS NULL AND d.eval_id IS NULL
)
SELECT count(*), min(landed_at) FROM waiting
"""
