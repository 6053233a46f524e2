-- The latest verdict of one metric version on each case, turn and rubric, NULL: it has none, or not on the turn as
-- it is now; and how likely it was that the turn was recorded and scored (a case: the largest probability of its
-- turns, which share one draw).
-- $digest: the metric's; rubrics pass by the majority of a judge's samples and of a panel's judges, a tie fails.
WITH scored AS (
  SELECT * FROM scores WHERE metric_digest = $digest
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC, scored_at DESC
  ) = 1
),
turns_scored AS (
  SELECT * FROM latest_turn_scores WHERE metric_digest = $digest
),
voted AS (
  SELECT v.*, t.threshold, c.judge, c.judge = 'second' AS is_second
  FROM rubric_votes v
  JOIN turns_scored t USING (run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision,
                             metric_name)
  JOIN judge_calls c USING (run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision,
                            metric_name, sample_index)
  WHERE v.rubric_id <> ''
  -- Where the second judge of a cascade was asked, only its votes count.
  QUALIFY is_second = bool_or(is_second) OVER (
    PARTITION BY v.app_name, v.eval_set_id, v.eval_id, v.invocation_id
  )
),
rubrics_voted AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, rubric_id,
         count(*) FILTER (2 * passes > votes) AS passing, count(*) AS judges, bool_and(votes = asked) AS whole
  FROM (
    SELECT app_name, eval_set_id, eval_id, invocation_id, rubric_id, judge,
           count(*) FILTER (score >= threshold) AS passes, count(score) AS votes, count(*) AS asked
    FROM voted GROUP BY ALL
  )
  GROUP BY ALL
),
-- As in latest_weighted_turn_scores.
decided AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, probability
  FROM latest_decisions WHERE metric_digest = $digest
),
drawn AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, t.turn_revision AS newest,
         coalesce(t.inclusion_probability, 1) * coalesce(d.probability, 1) AS probability
  FROM latest_turns t LEFT JOIN decided d USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
),
of_turns AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, coalesce(probability, 1) AS probability,
         coalesce(turn_revision = newest AND probability > 0, true) AS counts,
         CASE status WHEN 'passed' THEN true WHEN 'failed' THEN false END AS passes
  FROM turns_scored LEFT JOIN drawn USING (app_name, eval_set_id, eval_id, invocation_id)
),
of_cases AS (
  SELECT app_name, eval_set_id, eval_id, coalesce(probability, 1) AS probability,
         coalesce(probability > 0, true) AS counts,
         CASE status WHEN 'passed' THEN true WHEN 'failed' THEN false END AS passes
  FROM scored LEFT JOIN (
    SELECT app_name, eval_set_id, eval_id, max(probability) AS probability FROM drawn GROUP BY ALL
  ) USING (app_name, eval_set_id, eval_id)
)
SELECT app_name, eval_set_id, eval_id, '' AS invocation_id, '' AS rubric_id,
       CASE WHEN counts THEN passes END, probability
FROM of_cases
UNION ALL
SELECT app_name, eval_set_id, eval_id, invocation_id, '', CASE WHEN counts THEN passes END, probability
FROM of_turns
UNION ALL
SELECT app_name, eval_set_id, eval_id, invocation_id, rubric_id,
       CASE WHEN counts AND whole THEN 2 * passing > judges END, probability
FROM rubrics_voted JOIN of_turns USING (app_name, eval_set_id, eval_id, invocation_id)
