-- As listing.sql, from the summary that has a row for each case.
WITH versions AS (
  SELECT app_name, eval_set_id, eval_id, max(version) AS version
  FROM latest_turns SEMI JOIN listed_cases USING (app_name, eval_set_id, eval_id)
  GROUP BY ALL
)
SELECT app_name, eval_set_id, eval_id, l.first_at, opening, tools,
       ['passed', 'unscored', 'not_evaluated', 'error', 'failed', 'crashed'][severity + 1],
       failed, CASE feedback WHEN 0 THEN 'mixed' WHEN 1 THEN 'up' WHEN -1 THEN 'down' END,
       version, l.turns, l.cost_usd, l.latency_ms
FROM listed_cases l
JOIN case_index c USING (app_name, eval_set_id, eval_id)
LEFT JOIN versions USING (app_name, eval_set_id, eval_id)
ORDER BY l.place
