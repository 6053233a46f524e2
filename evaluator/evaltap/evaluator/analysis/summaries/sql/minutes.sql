-- What the turns of some minutes (minute_turns) add up to; calls, turn_scores, decisions: the rows
-- to look at.
INSERT INTO turns_by_minute
SELECT bucket, app_name, count(*), count(*) FILTER (status = 'error'), coalesce(sum(weight), 0),
       sum(cost_usd), sum(input_tokens), sum(output_tokens), count(*) FILTER (status = 'incomplete'),
       sum(weight) FILTER (cost_usd IS NOT NULL)
FROM minute_turns
GROUP BY bucket, app_name;

INSERT INTO latency_by_minute
SELECT bucket, app_name, bin, count(*), coalesce(sum(weight), 0)
FROM minute_turns
WHERE bin IS NOT NULL
GROUP BY bucket, app_name, bin;

INSERT INTO scores_by_minute
WITH newest AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest, probability
  FROM {decisions}
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest
    ORDER BY decided_at DESC
  ) = 1
),
weighted AS (
  SELECT bucket, app_name, metric_name, metric_digest, s.status, score,
       weight / if(coalesce(probability, 1) > 0, coalesce(probability, 1), NULL) AS weight
FROM (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name, metric_digest,
         status, score
  FROM {turn_scores}
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id,
                 if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_digest
    ORDER BY turn_revision DESC, scored_at DESC
  ) = 1
) s
JOIN minute_turns USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN newest
  USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest)
)
SELECT bucket, app_name, metric_name, metric_digest, status, count(*),
       sum(weight * score), sum(weight), sum(weight * weight),
       coalesce(sum(weight) FILTER (score IS NOT NULL), 0)
FROM weighted
WHERE weight IS NOT NULL
GROUP BY bucket, app_name, metric_name, metric_digest, status;

INSERT INTO tools_by_minute
SELECT bucket, app_name, tool_name,
       if(duration_ms IS NULL, NULL, floor(ln(least(greatest(duration_ms, 1), 1e12)) / ln(1.05)))::SMALLINT,
       count(*), count(*) FILTER (error_type IS NOT NULL OR error_message IS NOT NULL)
FROM {calls} c
JOIN minute_turns USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
GROUP BY ALL;

INSERT INTO left_out_by_minute
WITH standing AS (
  SELECT *, coalesce(weight, 0) - 1 AS more FROM minute_turns WHERE weight IS DISTINCT FROM 1
)
SELECT bucket, app_name, 'turns', NULL, sum(more),
       coalesce(sum(more) FILTER (status IN ('error', 'incomplete')), 0), sum(more * cost_usd)
FROM standing
GROUP BY ALL
UNION ALL
SELECT bucket, app_name, 'calls', tool_name, sum(more),
       coalesce(sum(more) FILTER (error_type IS NOT NULL OR error_message IS NOT NULL), 0), NULL
FROM {calls} c
JOIN standing USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
GROUP BY ALL;
