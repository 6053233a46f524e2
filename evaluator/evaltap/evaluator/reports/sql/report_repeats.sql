-- The recordings of each case, by metric and version of the agent: their name, and whether they passed.
-- `scope`: FROM … WHERE … over the scores.
WITH recorded AS (
  SELECT app_name, eval_set_id, eval_id, any_value(version) AS version, any_value(run) AS run
  FROM latest_turns
  GROUP BY ALL
),
verdicts AS (
  SELECT s.metric_name, r.version, s.app_name, s.eval_id,
         coalesce(r.run, r.version, '') AS recording,
         if(s.eval_set_id = coalesce(r.run, r.version, ''), '',
            regexp_replace(s.eval_set_id, '@[^@]*$', '')) AS set_name,
         s.status = 'passed' AS passed
  FROM (SELECT * {scope}) s JOIN recorded r USING (app_name, eval_set_id, eval_id)
  WHERE s.status IN ('passed', 'failed', 'crashed')
)
SELECT metric_name, version, app_name, set_name,
       list({{'run': recording, 'passed': passed}} ORDER BY recording)
FROM verdicts
GROUP BY metric_name, version, app_name, set_name, eval_id
ORDER BY ALL
