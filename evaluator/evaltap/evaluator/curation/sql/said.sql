-- Turns as they are compared; `turns`: rows of `curation_turns`, `narrowed`: which of them.
SELECT app, eval_set_id, eval_id, invocation_id, tool_path, outcome, coalesce(user_text, ''), weight
FROM ({turns}) {narrowed}
ORDER BY app, eval_set_id, eval_id, invocation_id
