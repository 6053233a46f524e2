-- The newest revision of each landed turn, with what estimates slice by and conditions look at.
-- `columns` and `joins` add what other tables know; $since and $until bound its start, NULL: not.
SELECT
  t.app_name AS app, t.eval_set_id, t.eval_id, t.invocation_id, t.turn_revision AS revision,
  t.producer_id, t.started_at, t.status, t.user_text, t.final_text, t.tool_count, t.models,
  t.input_tokens, t.output_tokens, t.cost_usd, t.latency_ms, t.error_type, t.error_message,
  t.trace_id, t.agent_name, t.version, t.environment, t.tags, t.run, concat_ws('@', t.version, t.run) AS recording,
  t.sampling_reason, coalesce(t.inclusion_probability, 1) AS inclusion_probability
  {columns}
FROM {turns} t
{joins}
WHERE coalesce(t.inclusion_probability, 1) > 0
  AND ($since::TIMESTAMP IS NULL OR t.started_at >= $since)
  AND ($until::TIMESTAMP IS NULL OR t.started_at < $until)
