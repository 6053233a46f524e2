-- As listing.sql, from the summary that has a row for each case.  By last_at and scored_at row groups are skipped.
WITH listed AS (
  SELECT *, {case_key} AS case_key
  FROM {cases}
),
indexed AS (
  SELECT c.*, l.place, l.first_at AS started_at, l.cost_usd AS cost, l.latency_ms AS latency, l.turns AS turns_of
  FROM listed l JOIN case_index c USING (case_key, last_at)
),
these_scores AS (
  FROM scores s SEMI JOIN indexed USING (app_name, eval_set_id, eval_id)
  WHERE s.scored_at BETWEEN (SELECT min(first_scored_at) FROM indexed)
                        AND (SELECT max(last_scored_at) FROM indexed)
),
{scores}
SELECT c.app_name, c.eval_set_id, c.eval_id, c.started_at, opening, tools,
       CASE
         WHEN severity = 2 AND len(c.passed) > 0 THEN 'passed'
         ELSE ['passed', 'unscored', 'not_evaluated', 'error', 'failed', 'crashed'][severity + 1]
       END,
       coalesce(verdicts, []), coalesce(s.passed, 0), coalesce(s.not_evaluated, 0),
       CASE feedback WHEN 0 THEN 'mixed' WHEN 1 THEN 'up' WHEN -1 THEN 'down' END,
       t.version, c.turns_of, c.cost, c.latency
FROM indexed c
LEFT JOIN of_scores s USING (app_name, eval_set_id, eval_id)
LEFT JOIN (SELECT landed_seq, version FROM turns) t ON t.landed_seq = c.last_seq
ORDER BY place
