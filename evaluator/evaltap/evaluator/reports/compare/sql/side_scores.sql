-- The scores of some runs, oldest first.  A trial is a recording: of what landed a revision of the case,
-- of files a run, of gates a run and the time that it met the case (what `revise` had mended
-- is left out).  A session that has grown since counts with all its turns only.  Repeats of a case, which
-- the name of their eval set tells apart, are trials of the same case.  $version, unless it is empty, leaves
-- the recordings of one version of the agent.
WITH repeats AS (
  SELECT app_name, eval_set_id, eval_id, any_value({repeat}) AS repeat, any_value(version) AS version
  FROM turns WHERE run IS NOT NULL
  GROUP BY ALL
),
named AS (
  SELECT s.*, r.kind, p.version,
         -- Of files and gates, the name of the repeat is only in that of the eval set.
         coalesce(p.repeat, if(r.kind IN ('files', 'gate'), regexp_extract(s.eval_set_id, '@([^@]*)$', 1), ''))
           AS repeat
  FROM scores s JOIN runs r USING (run_id)
  LEFT JOIN repeats p USING (app_name, eval_set_id, eval_id)
)
SELECT s.app_name, {eval_set}, s.eval_id,
       concat_ws(' ', CASE s.kind
         WHEN 'files' THEN s.run_id
         WHEN 'gate'  THEN concat_ws(' ', s.run_id, s.revision)
         ELSE 'revision ' || s.revision
       END, nullif(s.repeat, '')) AS trial,
       s.metric_name, s.metric_digest, s.status, s.score, s.threshold,
       if(s.status = 'passed', '', left(coalesce(s.reason, ''), 1000)), s.run_id, s.eval_set_id
FROM named s
ANTI JOIN mended_attempts USING (run_id, app_name, eval_set_id, eval_id, revision)
WHERE (len($runs) = 0 OR list_contains($runs, s.run_id)) AND ($version = '' OR s.version = $version)
QUALIFY s.kind NOT IN ('landed', 'live') OR (
  s.turn_count = max(s.turn_count) OVER (
    PARTITION BY s.app_name, s.eval_set_id, s.eval_id, s.kind IN ('landed', 'live')
  )
  -- Of scores that feedback changed, the last one.
  AND s.scored_at = max(s.scored_at) OVER (
    PARTITION BY s.run_id, s.app_name, s.eval_set_id, s.eval_id, s.revision, s.metric_digest
  )
)
ORDER BY s.scored_at, s.app_name, s.eval_set_id, s.eval_id, s.metric_name, s.score_id
