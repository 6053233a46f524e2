-- Turns as they are compared; `chosen`: rows of the window, with the number of turns each stands for.
SELECT c.app, c.eval_set_id, c.eval_id, c.invocation_id, c.tool_path, c.outcome,
       coalesce(t.user_text, '') AS text, c.weight, c.copies, f.eval_id IS NULL AS clean
FROM ({chosen}) c JOIN turns t
  ON t.app_name = c.app AND t.eval_set_id = c.eval_set_id AND t.eval_id = c.eval_id
 AND t.invocation_id = c.invocation_id AND t.landed_seq = c.landed_seq
LEFT JOIN (
  SELECT DISTINCT app_name, eval_set_id, eval_id FROM turns WHERE status IN ('error', 'incomplete')
) f ON f.app_name = c.app AND f.eval_set_id = c.eval_set_id AND f.eval_id = c.eval_id
