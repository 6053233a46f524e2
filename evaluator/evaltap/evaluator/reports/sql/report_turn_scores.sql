-- The turn scores behind the scores of a report, for the cases that it shows in full.  A turn that landed late has
-- changed the places of those that were scored before it.
WITH places AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id,
         row_number() OVER (
           PARTITION BY app_name, eval_set_id, eval_id
           ORDER BY arg_max(started_at, turn_revision) NULLS FIRST, min(landed_seq)
         ) - 1 AS place
  FROM turns SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)
  GROUP BY app_name, eval_set_id, eval_id, invocation_id
)
SELECT t.app_name, t.eval_set_id, t.eval_id, t.metric_name,
       coalesce(p.place, t.turn_index) AS place, t.invocation_id, t.status, t.score, coalesce(t.reason, '')
FROM turn_scores t
JOIN {scores} s USING (run_id, app_name, eval_set_id, eval_id, metric_digest)
SEMI JOIN {cases} c USING (app_name, eval_set_id, eval_id)
LEFT JOIN places p USING (app_name, eval_set_id, eval_id, invocation_id)
QUALIFY rank() OVER (
  PARTITION BY t.app_name, t.eval_set_id, t.eval_id, t.metric_name,
               if(t.invocation_id = '', t.turn_index::VARCHAR, t.invocation_id)
  ORDER BY t.turn_revision DESC
) = 1
ORDER BY t.app_name, t.eval_set_id, t.eval_id, t.metric_name, place
