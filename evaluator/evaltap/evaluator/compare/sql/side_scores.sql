-- The scores of some runs, oldest first.  A trial is a recording: of what landed a revision of the case,
-- of files and gates a run.  A session that has grown since counts with all its turns only.
SELECT s.app_name, s.eval_set_id, s.eval_id,
       if(r.kind IN ('landed', 'live'), 'revision ' || s.revision, s.run_id) AS trial,
       s.metric_name, s.metric_digest, s.status, s.score, s.threshold, s.run_id
FROM scores s JOIN runs r USING (run_id)
WHERE len($runs) = 0 OR list_contains($runs, s.run_id)
QUALIFY r.kind NOT IN ('landed', 'live') OR s.turn_count = max(s.turn_count) OVER (
  PARTITION BY s.app_name, s.eval_set_id, s.eval_id, r.kind IN ('landed', 'live')
)
ORDER BY s.scored_at, s.score_id
