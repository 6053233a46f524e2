-- The scores of some runs, oldest first.  A trial is a recording: of what landed a revision of the case,
-- of files a run, of gates a run and the time that it met the case (what `revise` had mended
-- is left out).  A session that has grown since counts with all its turns only.
SELECT s.app_name, s.eval_set_id, s.eval_id,
       CASE r.kind
         WHEN 'files' THEN s.run_id
         WHEN 'gate'  THEN concat_ws(' ', s.run_id, s.revision)
         ELSE 'revision ' || s.revision
       END AS trial,
       s.metric_name, s.metric_digest, s.status, s.score, s.threshold, s.run_id
FROM scores s JOIN runs r USING (run_id)
ANTI JOIN mended_attempts USING (run_id, app_name, eval_set_id, eval_id, revision)
WHERE len($runs) = 0 OR list_contains($runs, s.run_id)
QUALIFY r.kind NOT IN ('landed', 'live') OR s.turn_count = max(s.turn_count) OVER (
  PARTITION BY s.app_name, s.eval_set_id, s.eval_id, r.kind IN ('landed', 'live')
)
ORDER BY s.scored_at, s.score_id
