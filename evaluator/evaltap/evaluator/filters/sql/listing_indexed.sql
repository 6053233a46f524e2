-- As listing.sql, from the summary that has a row for each case.  By last_at row groups are skipped.
WITH listed AS (
  SELECT *, md5_number_lower(concat_ws(chr(31), app_name, eval_set_id, eval_id)) AS case_key
  FROM listed_cases
)
SELECT l.app_name, l.eval_set_id, l.eval_id, l.first_at, opening, tools,
       ['passed', 'unscored', 'not_evaluated', 'error', 'failed', 'crashed'][severity + 1],
       failed, CASE feedback WHEN 0 THEN 'mixed' WHEN 1 THEN 'up' WHEN -1 THEN 'down' END,
       t.version, l.turns, l.cost_usd, l.latency_ms
FROM listed l
JOIN case_index c USING (case_key, last_at)
LEFT JOIN (SELECT landed_seq, version FROM turns) t ON t.landed_seq = c.last_seq
ORDER BY place
