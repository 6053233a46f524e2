-- CTEs over `these_scores`: the latest of each metric, by case.
newest_scores AS (
  FROM these_scores
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, metric_name ORDER BY revision DESC, scored_at DESC
  ) = 1
),
of_scores AS (
  SELECT app_name, eval_set_id, eval_id, list(DISTINCT status) AS statuses,
         list(struct_pack(metric := metric_name, status := status, score := score,
                           reason := left(coalesce(reason, ''), 1000)) ORDER BY metric_name)
           FILTER (status IN ('failed', 'crashed', 'error')) AS verdicts,
         count(*) FILTER (status = 'passed') AS passed,
         count(*) FILTER (status = 'not_evaluated') AS not_evaluated
  FROM newest_scores
  GROUP BY ALL
)
