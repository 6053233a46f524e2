-- The next scores of turns of live runs behind ($at, $key), with the span that each judges: the last chat span for
-- metrics that look at the answer, else the root of the run.
SELECT s.*, m.evaluator_name, m.evaluator_version, t.trace_id,
       if(m.metric_json LIKE '%"finalResponse"%' OR m.metric_json LIKE '%"llmJudge"%',
          coalesce(nullif(t.actual_json->'telemetry'->>'lastChatSpanId', ''), t.root_span_id),
          t.root_span_id) AS span_id,
       coalesce(t.inclusion_probability, 1) * coalesce(d.probability, 1) AS probability
FROM (
  SELECT ts.* FROM turn_scores ts JOIN runs r USING (run_id)
  WHERE r.kind = 'live' AND ts.scored_at >= $at AND (ts.scored_at, ts.score_id) > ($at, $key)
  ORDER BY ts.scored_at, ts.score_id LIMIT $limit
) s
JOIN run_metrics m USING (run_id, metric_digest)
LEFT JOIN (
  FROM turns QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id, turn_revision ORDER BY landed_seq
  ) = 1
) t USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN latest_decisions d
  USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest)
ORDER BY s.scored_at, s.score_id
