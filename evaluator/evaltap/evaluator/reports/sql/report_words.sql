-- What the user said first in each of the chosen cases that landed, and the tools that it called.
WITH said AS (
  SELECT app_name, eval_set_id, eval_id,
         arg_min(user_text, (coalesce(started_at, '-infinity'), first_landed_seq)) AS opening
  FROM latest_turns SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)
  WHERE user_text IS NOT NULL
  GROUP BY ALL
), called AS (
  SELECT app_name, eval_set_id, eval_id, list(DISTINCT tool_name ORDER BY tool_name) AS tools
  FROM latest_tool_calls SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)
  WHERE tool_name IS NOT NULL
  GROUP BY ALL
)
SELECT app_name, eval_set_id, eval_id, coalesce(said.opening, ''), coalesce(called.tools, [])
FROM said FULL JOIN called USING (app_name, eval_set_id, eval_id)
