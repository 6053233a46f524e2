-- As listing.sql, from the summary that has a row for each case.  By last_at row groups are skipped.
SELECT l.app_name, l.eval_set_id, l.eval_id, l.first_at, coalesce(opening, ''), tools, errors > 0,
       CASE feedback WHEN 0 THEN 'mixed' WHEN 1 THEN 'up' WHEN -1 THEN 'down' END,
       version, l.turns, l.cost_usd, l.unpriced, l.latency_ms, first_scored_at, last_scored_at
FROM (SELECT *, {case_key} AS case_key FROM {cases}) l
JOIN case_index USING (case_key, last_at)
LEFT JOIN (SELECT landed_seq, version FROM turns) ON landed_seq = last_seq
ORDER BY place
