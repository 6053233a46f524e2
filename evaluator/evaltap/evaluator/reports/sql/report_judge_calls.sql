-- The answers of judges behind the scores of a report; of the same run as the votes.
SELECT v.app_name, v.eval_set_id, v.eval_id, v.metric_name,
       v.invocation_id, v.sample_index, v.judge, coalesce(v.model, '') AS model, v.status,
       coalesce(v.reason, '') AS reason, v.cached, v.input_tokens, v.output_tokens, v.cost_usd, v.latency_ms
FROM judge_calls v
JOIN run_metrics m USING (run_id, metric_name)
JOIN {scores} s USING (app_name, eval_set_id, eval_id, metric_digest)
QUALIFY rank() OVER (
  PARTITION BY v.app_name, v.eval_set_id, v.eval_id, v.metric_name, v.invocation_id
  ORDER BY v.turn_revision DESC, v.run_id = s.run_id DESC, v.run_id DESC
) = 1
