-- Of each block in `blocks` at most so many turns, which stand for the others, too; none of those in `without`.
SELECT *, of_block / least(of_block, $most) AS copies
FROM (
  SELECT *, count(*) OVER (PARTITION BY app, tool_path, outcome) AS of_block
  FROM {turns} SEMI JOIN {blocks} USING (app, tool_path, outcome)
  ANTI JOIN {without} USING (app, eval_set_id, eval_id, invocation_id)
)
QUALIFY row_number() OVER (
  PARTITION BY app, tool_path, outcome ORDER BY md5(eval_id || chr(0) || invocation_id), eval_set_id
) <= $most
