-- The recordings of each case, by metric and version of the agent: their name, and whether they passed.
-- `scope`: FROM … WHERE … over the scores.
WITH recorded AS (
  SELECT app_name, eval_set_id, eval_id, any_value(version) AS version, any_value(run) AS run
  FROM latest_turns
  GROUP BY ALL
),
named AS (
  -- Of cases of files the name of the recording is only in their eval set's.
  SELECT s.*, r.version,
         coalesce(r.run, r.version, regexp_extract(s.eval_set_id, '@([^@]*)$', 1)) AS recording
  FROM (SELECT * {scope}) s LEFT JOIN recorded r USING (app_name, eval_set_id, eval_id)
),
verdicts AS (
  SELECT metric_name, version, app_name, eval_id, recording,
         if(eval_set_id = recording, '', regexp_replace(eval_set_id, '@[^@]*$', '')) AS set_name,
         status = 'passed' AS passed
  FROM named
  WHERE status IN ('passed', 'failed', 'crashed')
)
SELECT metric_name, version, app_name, set_name, eval_id,
       list({{'run': recording, 'passed': passed}} ORDER BY recording)
FROM verdicts
GROUP BY metric_name, version, app_name, set_name, eval_id
ORDER BY ALL
