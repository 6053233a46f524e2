-- Landed sessions as if they were turns: one draw, with the largest probability of its turns.
-- `columns` and `joins` as in turns.sql.
SELECT
  t.app_name AS app, t.eval_set_id, t.eval_id, '' AS invocation_id, t.producer_id, t.started_at,
  t.recording, t.inclusion_probability
  {columns}
FROM (
  SELECT app_name, eval_set_id, eval_id, any_value(producer_id) AS producer_id,
         min(started_at) AS started_at, any_value(concat_ws('@', version, run)) AS recording,
         max(coalesce(inclusion_probability, 1)) AS inclusion_probability
  FROM latest_turns
  WHERE coalesce(inclusion_probability, 1) > 0
  GROUP BY ALL
) t
{joins}
WHERE ($since::TIMESTAMP IS NULL OR t.started_at >= $since)
  AND ($until::TIMESTAMP IS NULL OR t.started_at < $until)
