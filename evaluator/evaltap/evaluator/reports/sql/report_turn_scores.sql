-- The turn scores behind the scores of a report, for the cases that it shows in full.
SELECT t.app_name, t.eval_set_id, t.eval_id, t.metric_name,
       t.turn_index, t.invocation_id, t.status, t.score, coalesce(t.reason, '')
FROM turn_scores t
JOIN {scores} s USING (run_id, app_name, eval_set_id, eval_id, metric_digest)
SEMI JOIN {cases} c USING (app_name, eval_set_id, eval_id)
QUALIFY rank() OVER (
  PARTITION BY t.app_name, t.eval_set_id, t.eval_id, t.metric_name,
               if(t.invocation_id = '', t.turn_index::VARCHAR, t.invocation_id)
  ORDER BY t.turn_revision DESC
) = 1
ORDER BY t.app_name, t.eval_set_id, t.eval_id, t.metric_name, t.turn_index
