"""The design effect of sessions on a pass rate: turns of one session carry less information.

The summaries contain turns, not sessions, so the effect is computed from the newest verdicts and applied to
the whole span.  The formula is that of `evaltap estimate` without weights; see docs/explanation/estimates.md.
"""

from typing import Final

from evaltap.evaluator.page.traffic import Span
from evaltap.evaluator.store.queries import StoreReader

LOOKED_AT: Final = 50_000
"""The number of rows of turn_scores; the last ones, because a search for the newest would read a month of
them."""

_EFFECTS: Final = """
WITH newest AS (
  SELECT app_name, eval_set_id, eval_id, metric_digest, status, scored_at,
         if(invocation_id = '', turn_index::VARCHAR, invocation_id) AS turn
  FROM turn_scores
  SEMI JOIN (FROM runs WHERE kind IN ('live', 'landed')) USING (run_id)
  WHERE rowid >= {first} AND scored_at >= $start AND status IN ('passed', 'failed', 'crashed')
    AND ($app::VARCHAR = '' OR app_name = $app)
),
verdicts AS (
  SELECT app_name, eval_set_id, eval_id, metric_digest, arg_max(status, scored_at) = 'passed' AS passed
  FROM newest GROUP BY app_name, eval_set_id, eval_id, metric_digest, turn
),
sessions AS (
  SELECT metric_digest, count(*) AS n, count(*) FILTER (passed) AS good
  FROM verdicts GROUP BY app_name, eval_set_id, eval_id, metric_digest
),
totals AS (
  SELECT metric_digest, sum(n) AS turns, count(*) AS many, sum(good) / sum(n) AS rate
  FROM sessions GROUP BY metric_digest
)
SELECT metric_digest,
       CASE
         WHEN many = 1 OR rate IN (0, 1) THEN turns / many  -- how alike turns are does not show
         ELSE greatest(1, (many - 1) / many * sum(pow((good - rate * n) / (turns - n), 2))
                          * turns / (rate * (1 - rate)))
       END
FROM sessions JOIN totals USING (metric_digest)
GROUP BY metric_digest, turns, many, rate
"""


def design_effects(reader: StoreReader, span: Span, app: str) -> dict[str, float]:
    """Return the design effect of each metric's pass rate, by metric digest; 1 means no effect."""
    ((last,),) = reader.rows("SELECT coalesce(max(rowid), 0) FROM turn_scores")
    query = _EFFECTS.format(first=max(0, last - LOOKED_AT))
    rows = reader.rows(query, {"start": span.start, "app": app})
    return {digest: float(effect) for digest, effect in rows}
