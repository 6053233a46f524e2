-- The turns of a recipe's window with their blocks; `turns`: rows of `curation_turns`, `source`: conditions on
-- them.
SELECT app, eval_set_id, eval_id, invocation_id, landed_seq, tool_path, outcome, weight
FROM ({turns})
WHERE ($since::TIMESTAMP IS NULL OR started_at >= $since)
  AND ($until::TIMESTAMP IS NULL OR started_at < $until)
  AND ($app::VARCHAR = '' OR app = $app)
  {source}
