-- Of each block in `blocks` at most so many turns, which stand for the others, too.
SELECT *, weight * of_block / least(of_block, $most) AS stands_for
FROM (
  SELECT *, count(*) OVER (PARTITION BY app, tool_path, outcome) AS of_block
  FROM {turns} SEMI JOIN {blocks} USING (app, tool_path, outcome)
)
QUALIFY row_number() OVER (
  PARTITION BY app, tool_path, outcome ORDER BY md5(eval_id || chr(0) || invocation_id), eval_set_id
) <= $most
