-- Rows of case_index.  turns, cases, calls, scores, turn_scores, feedback, reviews: what to look at; all rows of
-- some cases, or the tables as they are.  newest: newest.sql of the store, case_key: CASE_KEY.
WITH these_cases AS (
  SELECT app_name, eval_set_id, eval_id, revision, landed_at, user_id, service FROM {cases}
),
these_turns AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, landed_seq, started_at,
         coalesce(started_at, landed_at) AS turn_at, status, left(user_text, 160) AS opening, models,
         input_tokens, output_tokens, cost_usd, latency_ms, capture, inclusion_probability
  FROM {turns}
),
{newest},
of_revisions AS (
  SELECT app_name, eval_set_id, eval_id,
         min(landed_seq) AS first_seq, max(landed_seq) AS last_seq
  FROM these_turns
  GROUP BY ALL
),
of_turns AS (
  SELECT app_name, eval_set_id, eval_id, min(turn_at) AS first_at, max(turn_at) AS last_at,
         count(*) AS turns, count(*) FILTER (status IN ('error', 'incomplete')) AS errors,
         sum(cost_usd) AS cost_usd, count(*) FILTER (cost_usd IS NULL) AS unpriced, max(latency_ms) AS latency_ms,
         sum(if(input_tokens IS NULL AND output_tokens IS NULL, NULL,
                coalesce(input_tokens, 0)::HUGEINT + coalesce(output_tokens, 0))) AS tokens,
         list_sort(list_distinct(flatten(list(models) FILTER (models IS NOT NULL)))) AS models,
         first(opening ORDER BY started_at NULLS FIRST, first_landed_seq) AS opening,
         list_sort(list_distinct(flatten(list(json_keys(capture)) FILTER (capture IS NOT NULL)))) AS gaps,
         max(coalesce(inclusion_probability, 1)) AS inclusion_probability
  FROM newest_turns
  GROUP BY ALL
),
called AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, call_index, tool_name,
         coalesce(started_at, TIMESTAMP '0001-01-01') AS turn_at, first_landed_seq
  FROM (SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, call_index, tool_name FROM {calls})
  JOIN (
    SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, started_at, first_landed_seq
    FROM newest_turns
  ) USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
),
paths AS (
  SELECT app_name, eval_set_id, eval_id, turn_at, first_landed_seq, count(*) AS calls,
         string_agg(coalesce(tool_name, ''), ' > ' ORDER BY call_index) AS path
  FROM called
  GROUP BY ALL
),
of_paths AS (
  SELECT app_name, eval_set_id, eval_id, sum(calls) AS calls,
         string_agg(path, ' | ' ORDER BY turn_at, first_landed_seq) AS path
  FROM paths
  GROUP BY ALL
),
of_tools AS (
  SELECT app_name, eval_set_id, eval_id, list(tool_name ORDER BY place) AS tools
  FROM (
    SELECT app_name, eval_set_id, eval_id, tool_name,
           min((turn_at, first_landed_seq, call_index)) AS place
    FROM called WHERE tool_name IS NOT NULL GROUP BY ALL
  )
  GROUP BY ALL
),
newest_scores AS (
  SELECT app_name, eval_set_id, eval_id, metric_name, status, score FROM {scores}
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, metric_name ORDER BY revision DESC, scored_at DESC
  ) = 1
),
of_scores AS (
  SELECT app_name, eval_set_id, eval_id,
         list(metric_name ORDER BY metric_name) FILTER (status IN ('failed', 'crashed')) AS failed,
         list(metric_name ORDER BY metric_name) FILTER (status = 'error') AS errored,
         list(metric_name ORDER BY metric_name) FILTER (status = 'not_evaluated') AS not_evaluated,
         list(metric_name ORDER BY metric_name) FILTER (status = 'passed') AS passed,
         bool_or(status = 'crashed') AS crashed, min(score) AS lowest
  FROM newest_scores
  GROUP BY ALL
),
of_score_times AS (
  SELECT app_name, eval_set_id, eval_id,
         min(scored_at) AS first_scored_at, max(scored_at) AS last_scored_at
  FROM (
    SELECT app_name, eval_set_id, eval_id, scored_at FROM {scores}
    UNION ALL SELECT app_name, eval_set_id, eval_id, scored_at FROM {turn_scores}
  )
  GROUP BY ALL
),
keys AS (
  SELECT app_name, eval_set_id, eval_id FROM of_turns
  UNION SELECT app_name, eval_set_id, eval_id FROM of_score_times
),
thumbs AS (
  SELECT k.app_name, k.eval_set_id, k.eval_id,
         bool_or(f.positive) AS up, bool_or(NOT f.positive) AS down
  FROM {feedback} f JOIN keys k ON {is_about}
  GROUP BY ALL
),
of_reviews AS (
  SELECT app_name, eval_set_id, eval_id, coalesce(arg_max(action, reviewed_at) FILTER (action <> 'skip'), 'skip') AS reviewed,
         list_sort(list_distinct(flatten(list(labels) FILTER (labels IS NOT NULL)))) AS labels
  FROM {reviews}
  GROUP BY ALL
)
SELECT
  {case_key} AS case_key,
  app_name, eval_set_id, eval_id,
  coalesce(t.first_at, first_scored_at) AS first_at, coalesce(t.last_at, last_scored_at) AS last_at,
  first_seq, last_seq, first_scored_at, last_scored_at,
  coalesce(turns, 0) AS turns, coalesce(calls, 0) AS calls, coalesce(errors, 0) AS errors,
  t.cost_usd, coalesce(unpriced, 0) AS unpriced, t.latency_ms, tokens, user_id, service, coalesce(models, []) AS models, opening,
  coalesce(tools, []) AS tools, coalesce(path, '') AS path,
  coalesce(failed, []) AS failed, coalesce(errored, []) AS errored,
  coalesce(not_evaluated, []) AS not_evaluated, coalesce(passed, []) AS passed, lowest,
  CASE
    WHEN errors > 0 OR crashed THEN 5
    WHEN failed IS NOT NULL THEN 4
    WHEN errored IS NOT NULL THEN 3
    WHEN not_evaluated IS NOT NULL THEN 2
    WHEN passed IS NULL THEN 1
    ELSE 0
  END AS severity,
  coalesce(gaps, []) AS gaps,
  CASE WHEN up AND down THEN 0 WHEN up THEN 1 WHEN down THEN -1 END AS feedback,
  coalesce(t.inclusion_probability, 1) AS inclusion_probability,
  reviewed, coalesce(labels, []) AS labels
FROM keys
LEFT JOIN of_turns t USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_revisions USING (app_name, eval_set_id, eval_id)
LEFT JOIN newest_cases USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_paths USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_tools USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_scores USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_score_times USING (app_name, eval_set_id, eval_id)
LEFT JOIN thumbs USING (app_name, eval_set_id, eval_id)
LEFT JOIN of_reviews USING (app_name, eval_set_id, eval_id)
-- So that a list of the newest cases reads few row groups.
ORDER BY last_at
