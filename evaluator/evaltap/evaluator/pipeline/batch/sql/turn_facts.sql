-- The newest revisions of the turns of some sessions ($ids), and what `conditions` say of each.
WITH these AS (
  SELECT * FROM turns WHERE eval_id IN $ids::VARCHAR[]
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id ORDER BY turn_revision DESC, landed_seq
  ) = 1
),
calls AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         list(tool_name ORDER BY call_index) AS tools,
         count(*) FILTER (error_type IS NOT NULL OR error_message IS NOT NULL) AS failed_calls
  FROM tool_calls WHERE eval_id IN $ids::VARCHAR[]
  GROUP BY ALL
),
sessions AS (
  SELECT app_name, eval_set_id, eval_id, arg_max(service, revision) AS service
  FROM cases WHERE eval_id IN $ids::VARCHAR[]
  GROUP BY ALL
),
verdicts AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         list(metric_name) FILTER (status IN ('failed', 'crashed')) AS failed_metrics
  FROM (
    FROM turn_scores WHERE eval_id IN $ids::VARCHAR[]
    QUALIFY row_number() OVER (
      PARTITION BY app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name
      ORDER BY scored_at DESC
    ) = 1
  )
  GROUP BY ALL
)
SELECT app_name, eval_set_id, eval_id, invocation_id {conditions}
FROM (
  SELECT t.* EXCLUDE (status), t.app_name AS app, t.status, coalesce(k.tools, []) AS tools,
         coalesce(k.failed_calls, 0) AS failed_calls,
         coalesce(f.complaints, 0) AS complaints,
         s.service, coalesce(v.failed_metrics, []) AS failed_metrics
  FROM these t
  LEFT JOIN calls k USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
  LEFT JOIN (FROM v_turn_feedback WHERE eval_id IN $ids::VARCHAR[]) f
    USING (app_name, eval_set_id, eval_id, invocation_id)
  LEFT JOIN sessions s USING (app_name, eval_set_id, eval_id)
  LEFT JOIN verdicts v USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
)
