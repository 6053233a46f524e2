-- The newest verdicts on turns within some times, from the row `first` of turn_scores on, as `profiles.sql` reads
-- them; `session`: the cluster of a turn; $app: '' for all;
-- apart: a condition that leaves out runs.
WITH scored AS (
  SELECT app_name AS app, eval_set_id, eval_id, invocation_id, turn_revision, metric_name, metric_digest, status,
         app_name
  FROM turn_scores
  WHERE rowid >= {first} AND ($app::VARCHAR = '' OR app_name = $app) AND {apart}
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id,
                 if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_digest
    ORDER BY turn_revision DESC, scored_at DESC
  ) = 1
),
landed AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         coalesce(inclusion_probability, 1) AS recorded, concat_ws('@', version, run) AS recording
  FROM turns SEMI JOIN scored USING (app_name, eval_set_id, eval_id, invocation_id)
  WHERE coalesce(started_at, landed_at) >= $since AND coalesce(started_at, landed_at) < $until
    AND coalesce(inclusion_probability, 1) > 0
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id ORDER BY turn_revision DESC, landed_seq
  ) = 1
),
decided AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest, probability, unit
  FROM sampling_decisions SEMI JOIN scored USING (app_name, eval_set_id, eval_id, invocation_id)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest
    ORDER BY decided_at DESC
  ) = 1
)
SELECT metric_name AS metric, metric_digest, {session} AS session,
       recorded::DOUBLE AS recorded, coalesce(probability, 1)::DOUBLE AS scored,
       coalesce(d.unit = 'turn' AND probability < 1, false) AS by_turn, status = 'passed' AS has,
       status IN ('passed', 'failed', 'crashed') AS counts
FROM scored
JOIN landed USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN decided d
  USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest)
WHERE coalesce(probability, 1) > 0
