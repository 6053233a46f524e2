-- What a list shows of `cases` besides scores; `newest`: newest.sql of the store, `length`: of the opening.
WITH these_cases AS (FROM cases SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)),
these_turns AS (FROM turns SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)),
{newest},
of_turns AS (
  SELECT app_name, eval_set_id, eval_id,
         left(first(user_text ORDER BY started_at NULLS FIRST, first_landed_seq), {length}) AS opening,
         bool_or(status IN ('error', 'incomplete')) AS crashed
  FROM newest_turns
  GROUP BY ALL
),
versions AS (
  SELECT app_name, eval_set_id, eval_id, last(version ORDER BY landed_seq) AS version
  FROM these_turns
  GROUP BY ALL
),
calls AS (
  SELECT k.*, t.started_at AS turn_at, t.first_landed_seq
  FROM tool_calls k
  JOIN newest_turns t USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
),
of_calls AS (
  SELECT app_name, eval_set_id, eval_id, list(tool_name ORDER BY place) AS tools
  FROM (
    SELECT app_name, eval_set_id, eval_id, tool_name,
           min((coalesce(turn_at, TIMESTAMP '0001-01-01'), first_landed_seq, call_index)) AS place
    FROM calls WHERE tool_name IS NOT NULL GROUP BY ALL
  )
  GROUP BY ALL
),
thumbs AS (
  SELECT l.app_name, l.eval_set_id, l.eval_id,
         bool_or(f.positive) AS up, bool_or(NOT f.positive) AS down
  FROM feedback f JOIN {cases} l ON {is_about}
  GROUP BY ALL
)
SELECT app_name, eval_set_id, eval_id, l.first_at, coalesce(opening, ''), coalesce(tools, []), crashed,
       CASE WHEN up AND down THEN 'mixed' WHEN up THEN 'up' WHEN down THEN 'down' END,
       version, l.turns, l.cost_usd, l.unpriced, l.latency_ms, NULL, NULL
FROM {cases} l
JOIN of_turns USING (app_name, eval_set_id, eval_id)
JOIN versions USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_calls USING (app_name, eval_set_id, eval_id)
LEFT JOIN thumbs USING (app_name, eval_set_id, eval_id)
ORDER BY l.place
