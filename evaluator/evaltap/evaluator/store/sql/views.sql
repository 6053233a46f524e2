-- Views for everyday questions.  latest_*: the current state, with one row for each thing.

CREATE OR REPLACE VIEW latest_cases AS
SELECT * FROM cases
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC, landed_at DESC
) = 1;

-- Turns of a session are ordered by (started_at NULLS FIRST, first_landed_seq).  A revision of a turn lands
-- once, so a turn with only one revision needs no comparison, which saves a second over a million turns.
CREATE OR REPLACE VIEW latest_turns AS
SELECT *, landed_seq AS first_landed_seq
FROM turns
ANTI JOIN (
  SELECT app_name, eval_set_id, eval_id, invocation_id FROM turns WHERE turn_revision > 1
) USING (app_name, eval_set_id, eval_id, invocation_id)
UNION ALL (
  SELECT *, min(landed_seq) OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
  ) AS first_landed_seq
  FROM turns
  SEMI JOIN (
    SELECT app_name, eval_set_id, eval_id, invocation_id FROM turns WHERE turn_revision > 1
  ) USING (app_name, eval_set_id, eval_id, invocation_id)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
    ORDER BY turn_revision DESC, landed_seq
  ) = 1
);

CREATE OR REPLACE VIEW latest_tool_calls AS
SELECT c.* FROM tool_calls c
ANTI JOIN (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision
  FROM turns
  SEMI JOIN (
    SELECT app_name, eval_set_id, eval_id, invocation_id FROM turns WHERE turn_revision > 1
  ) USING (app_name, eval_set_id, eval_id, invocation_id)
  QUALIFY turn_revision < max(turn_revision) OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
  )
) USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision);

CREATE OR REPLACE VIEW latest_scores AS
SELECT * FROM scores
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id, metric_name ORDER BY revision DESC, scored_at DESC
) = 1;

-- One row for each turn and metric version, so verdicts of an old and a new rubric do not mix.  A turn
-- without an id is identified by its position.  Also join to latest_turns on the revision: a turn that
-- has grown since is not scored yet.
CREATE OR REPLACE VIEW latest_turn_scores AS
SELECT * FROM turn_scores
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id,
               if(invocation_id = '', turn_index::VARCHAR, invocation_id), metric_digest
  ORDER BY turn_revision DESC, scored_at DESC
) = 1;

-- Answers that `revise` had revised: the verdict on the last attempt of a trial counts.
CREATE OR REPLACE VIEW mended_attempts AS
SELECT run_id, app_name, eval_set_id, eval_id, revision
FROM gate_results
QUALIFY attempt < max(attempt) OVER (PARTITION BY run_id, app_name, eval_set_id, eval_id, trial);

-- The current gate verdict of each case.
CREATE OR REPLACE VIEW latest_gate_results AS
SELECT * FROM gate_results
QUALIFY row_number() OVER (PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC) = 1;

-- The gates' verdicts by run.
CREATE OR REPLACE VIEW v_gate AS
SELECT run_id,
       count(*)                                AS results,
       count(*) FILTER (status = 'passed')     AS passed,
       count(*) FILTER (status = 'failed')     AS failed,
       count(*) FILTER (status = 'incomplete') AS incomplete,
       avg(attempt)                            AS mean_attempts,
       max(judged_at)                          AS judged_at
FROM gate_results ANTI JOIN mended_attempts USING (run_id, app_name, eval_set_id, eval_id, revision)
GROUP BY run_id
ORDER BY judged_at;

-- Which turns the rules of the monitoring file select for a metric: the newest decision of each.
CREATE OR REPLACE VIEW latest_decisions AS
SELECT * FROM sampling_decisions
QUALIFY row_number() OVER (
  PARTITION BY app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest
  ORDER BY decided_at DESC
) = 1;

-- The scored landed turns, each with its weight: how many turns of the traffic it represents.
-- 1 without sampling, otherwise one over its inclusion probability.
CREATE OR REPLACE VIEW latest_weighted_turn_scores AS
SELECT s.*, t.started_at, t.models, t.agent_name, t.version, t.environment, t.tags, t.run,
       coalesce(t.inclusion_probability, 1) * coalesce(d.probability, 1) AS inclusion_probability,
       1 / (coalesce(t.inclusion_probability, 1) * coalesce(d.probability, 1)) AS weight
FROM latest_turn_scores s
JOIN latest_turns t USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN latest_decisions d
  USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest)
WHERE coalesce(t.inclusion_probability, 1) * coalesce(d.probability, 1) > 0;

-- Pass rates by slice ("case": all cases as recorded, the others: turns) and metric version, over the
-- latest scores; the views below name the slices.  Rates cover what could be evaluated and are estimates
-- for all traffic: a turn counts one over its probability, a session one over the largest of its turns,
-- which share one draw.  A crashed run counts as not passed.  Counts and sample_pass_rate describe what was
-- recorded.  Cases are not weighted for turns that score rules left out.  For intervals and effective numbers:
-- `evaltap estimate X.duckdb --by hour`.
CREATE OR REPLACE VIEW v_pass_rate_by AS
WITH newest AS (
  SELECT * FROM scores
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, metric_digest ORDER BY revision DESC, scored_at DESC
  ) = 1
),
drawn AS (
  SELECT app_name, eval_set_id, eval_id, 1 / max(coalesce(inclusion_probability, 1)) AS weight
  FROM latest_turns
  WHERE coalesce(inclusion_probability, 1) > 0
  GROUP BY ALL
),
called AS (
  SELECT DISTINCT app_name, eval_set_id, eval_id, invocation_id, turn_revision, tool_name
  FROM latest_tool_calls
),
-- Bound and read once for all slices: each view below binds this one again, and every command creates them.
turn_scores AS (SELECT * FROM latest_weighted_turn_scores),
verdicts AS (
  SELECT 'case' AS slice, NULL::VARCHAR AS value, metric_name, metric_digest, status, score, scored_at,
         coalesce(weight, 1) AS weight
  FROM newest LEFT JOIN drawn USING (app_name, eval_set_id, eval_id)
  UNION ALL
  SELECT 'hour', date_trunc('hour', started_at)::VARCHAR,
         metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
  UNION ALL
  SELECT 'tool', tool_name, metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
  JOIN called USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
  UNION ALL
  SELECT 'model', unnest(list_distinct(models)),
         metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
  UNION ALL
  SELECT 'version', version, metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
  UNION ALL
  SELECT 'environment', environment, metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
  UNION ALL
  SELECT 'agent', agent_name, metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
  UNION ALL
  SELECT 'tag', unnest(list_distinct(tags)),
         metric_name, metric_digest, status, score, scored_at, weight
  FROM turn_scores
)
SELECT
  slice,
  value,
  metric_name,
  count(*)                                   AS turns,
  count(*) FILTER (status = 'passed')        AS passed,
  count(*) FILTER (status = 'failed')        AS failed,
  count(*) FILTER (status = 'crashed')       AS crashed,
  count(*) FILTER (status = 'not_evaluated') AS not_evaluated,
  count(*) FILTER (status = 'error')         AS errors,
  coalesce(sum(weight) FILTER (status = 'passed'), 0)
    / sum(weight) FILTER (status IN ('passed', 'failed', 'crashed')) AS pass_rate,
  sum(weight * score) / sum(weight) FILTER (score IS NOT NULL) AS mean_score,
  count(*) FILTER (status = 'passed')
    / nullif(count(*) FILTER (status IN ('passed', 'failed', 'crashed')), 0) AS sample_pass_rate,
  sum(weight) FILTER (status IN ('passed', 'failed', 'crashed')) AS estimated_turns,
  metric_digest,
  max(scored_at) AS scored_at
FROM verdicts
GROUP BY slice, value, metric_name, metric_digest;

CREATE OR REPLACE VIEW v_pass_rate AS
SELECT metric_name, passed, failed, crashed, not_evaluated, errors, pass_rate, mean_score,
       sample_pass_rate, estimated_turns AS estimated_cases, metric_digest
FROM v_pass_rate_by
WHERE slice = 'case'
ORDER BY metric_name, scored_at, metric_digest;

CREATE OR REPLACE VIEW v_pass_rate_by_hour AS
SELECT value::TIMESTAMP AS hour, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'hour' ORDER BY ALL;

CREATE OR REPLACE VIEW v_pass_rate_by_tool AS
SELECT value AS tool_name, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'tool' ORDER BY ALL;

CREATE OR REPLACE VIEW v_pass_rate_by_model AS
SELECT value AS model, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'model' ORDER BY ALL;

CREATE OR REPLACE VIEW v_pass_rate_by_version AS
SELECT value AS version, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'version' ORDER BY ALL;

CREATE OR REPLACE VIEW v_pass_rate_by_environment AS
SELECT value AS environment, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'environment' ORDER BY ALL;

CREATE OR REPLACE VIEW v_pass_rate_by_agent AS
SELECT value AS agent_name, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'agent' ORDER BY ALL;

CREATE OR REPLACE VIEW v_pass_rate_by_tag AS
SELECT value AS tag, * EXCLUDE (slice, value, scored_at)
FROM v_pass_rate_by WHERE slice = 'tag' ORDER BY ALL;

-- Cases that did not pass, worst first, with the reason.
CREATE OR REPLACE VIEW v_worst_cases AS
SELECT app_name, eval_set_id, eval_id, metric_name, status, score, threshold, reason
FROM latest_scores
WHERE status IN ('failed', 'error', 'crashed')
ORDER BY score NULLS FIRST, app_name, eval_set_id, eval_id, metric_name;

-- Scores without a verdict, with the reason.
CREATE OR REPLACE VIEW v_not_scored AS
SELECT metric_name, status, reason, count(*) AS cases
FROM latest_scores
WHERE status IN ('not_evaluated', 'error')
GROUP BY ALL
ORDER BY cases DESC, metric_name;

-- Recorded calls by tool; what sampling left out is not in them.
CREATE OR REPLACE VIEW v_tools AS
SELECT
  tool_name,
  count(*)                                    AS calls,
  count(*) FILTER (error_type IS NOT NULL OR error_message IS NOT NULL) AS errors,
  quantile_cont(duration_ms, 0.5)             AS p50_ms,
  quantile_cont(duration_ms, 0.95)            AS p95_ms
FROM latest_tool_calls
GROUP BY tool_name
ORDER BY calls DESC, tool_name;

CREATE OR REPLACE VIEW v_dead_letters AS
SELECT reason, parked, count(*) AS records, any_value(detail) AS example
FROM dead_letters
GROUP BY ALL
ORDER BY records DESC;

-- Cost of judges, by metric and model.  A sum over unknown costs is NULL.  errors: calls without a usable answer;
-- not_asked: samples that were not requested, as the budget was spent or the judge could not be reached.
CREATE OR REPLACE VIEW v_judge_cost AS
SELECT
  metric_name,
  judge,
  model,
  count(*) FILTER (asked)                    AS calls,
  count(*) FILTER (cached)                   AS cached,
  count(*) FILTER (asked AND reason <> '')   AS errors,
  count(*) FILTER (NOT asked)                AS not_asked,
  sum(input_tokens)                          AS input_tokens,
  sum(output_tokens)                         AS output_tokens,
  CASE WHEN bool_and(cost_usd IS NOT NULL OR model IS NULL) THEN sum(cost_usd) END AS cost_usd,
  sum(saved_usd)                             AS saved_usd,
  quantile_cont(latency_ms, 0.5) FILTER (NOT cached)  AS p50_ms,
  quantile_cont(latency_ms, 0.95) FILTER (NOT cached) AS p95_ms
FROM (
  SELECT *, (status <> 'not_evaluated' OR sample_index < 0)
            AND coalesce(reason, '') NOT LIKE 'judge not called: %' AS asked
  FROM judge_calls
)
GROUP BY metric_name, judge, model
ORDER BY metric_name, judge, model;

-- How often the samples of a turn agree, over all its judges, the last time that it was judged.
CREATE OR REPLACE VIEW v_judge_agreement AS
SELECT
  metric_name,
  count(*)                                AS turns,
  count(*) FILTER (passed IN (0, votes))  AS unanimous,
  avg(greatest(passed, votes - passed) / votes) AS mean_share_of_majority
FROM (
  FROM (
    SELECT run_id, app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,
           count(*) AS votes, count(*) FILTER (status = 'passed') AS passed, max(scored_at) AS judged_at
    FROM judge_calls
    WHERE status IN ('passed', 'failed')
    GROUP BY ALL
  )
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id, metric_name
    ORDER BY turn_revision DESC, judged_at DESC
  ) = 1
)
WHERE votes > 1
GROUP BY metric_name
ORDER BY metric_name;

-- Sampling decisions by reason: turns that were kept, and counts of those that were left out.
CREATE OR REPLACE VIEW v_sampling AS
SELECT 'kept' AS decision, coalesce(sampling_reason, 'all') AS reason, count(*) AS turns,
       avg(coalesce(inclusion_probability, 1)) AS mean_probability
FROM latest_turns
GROUP BY ALL
UNION ALL
SELECT 'left out', dropped.key, sum(dropped.value::BIGINT), NULL
FROM (
  SELECT drops FROM manifests
  QUALIFY row_number() OVER (PARTITION BY producer_id ORDER BY stated_at DESC) = 1
), json_each(drops) AS dropped
WHERE dropped.key LIKE 'sampled_out%' OR dropped.key LIKE 'rate_limited%'
GROUP BY dropped.key
ORDER BY decision, turns DESC;

-- Feedback of users with its turn; no turn: it was not recorded, or not kept.  Feedback on a whole session is
-- about its last turn until then; that of a session without one, as clocks differ, about its last turn.
CREATE OR REPLACE VIEW v_feedback AS
WITH of_sessions AS (
  SELECT t.app_name, t.eval_set_id, t.eval_id, feedback_id,
         arg_max(t.invocation_id, (coalesce(t.started_at, TIMESTAMP '-infinity') <= given_at,
                                   coalesce(t.started_at, TIMESTAMP '-infinity'), first_landed_seq)) AS invocation_id
  FROM feedback f JOIN latest_turns t
    ON t.eval_id = f.eval_id AND f.eval_set_id IN (t.eval_set_id, t.eval_id) AND f.app_name IN ('', t.app_name)
  WHERE f.invocation_id IS NULL AND f.trace_id IS NULL
  GROUP BY ALL
),
last_turns AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, list(feedback_id) AS feedback_ids
  FROM of_sessions
  GROUP BY ALL
)
SELECT coalesce(t.app_name, f.app_name) AS app_name, coalesce(t.eval_set_id, f.eval_set_id) AS eval_set_id,
       f.eval_id, coalesce(t.invocation_id, f.invocation_id) AS invocation_id,
       f.name, f.positive, f.score, f.comment, f.correction, f.given_by, f.given_at, f.feedback_id,
       t.user_text, t.final_text
FROM feedback f
LEFT JOIN (
  FROM latest_turns LEFT JOIN last_turns USING (app_name, eval_set_id, eval_id, invocation_id)
) t
  ON t.eval_id = f.eval_id
 -- Feedback may not know of which recording it is; then it names the session as its eval set.
 AND f.eval_set_id IN (t.eval_set_id, t.eval_id)
 AND f.app_name IN ('', t.app_name)
 AND CASE WHEN f.invocation_id IS NOT NULL THEN t.invocation_id = f.invocation_id
          WHEN f.trace_id IS NOT NULL THEN t.trace_id = f.trace_id
          ELSE list_contains(t.feedback_ids, f.feedback_id) END
ORDER BY f.given_at DESC;

-- The tool calls of a turn, in order.
CREATE OR REPLACE VIEW v_turn_tools AS
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
       -- Half the time of an ordered aggregate.
       list_transform(list_sort(list((call_index, coalesce(tool_name, '')))), lambda call: call[2]) AS tools,
       count(*) FILTER (error_type IS NOT NULL OR error_message IS NOT NULL) AS failed_calls
FROM latest_tool_calls
GROUP BY ALL;

-- Thumbs by turn.
CREATE OR REPLACE VIEW v_turn_feedback AS
SELECT app_name, eval_set_id, eval_id, invocation_id,
       count(*) FILTER (NOT positive) AS complaints, count(*) FILTER (positive) AS praises
FROM v_feedback
WHERE invocation_id IS NOT NULL
GROUP BY ALL;

-- The metrics that a turn failed and passed, each by its latest score, whatever the metric's version, as in
-- latest_scores: a verdict that a changed metric has replaced does not count.
-- Only turns scored several times are compared (hashes may select too many of them, never too few).
CREATE OR REPLACE VIEW v_turn_verdicts AS
WITH keyed AS NOT MATERIALIZED (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_name,
         status, scored_at, if(invocation_id = '', turn_index::VARCHAR, invocation_id) AS turn
  FROM turn_scores
),
several AS (
  SELECT hash(app_name, eval_set_id, eval_id, turn, metric_name) AS of_turn
  FROM keyed GROUP BY ALL HAVING count(*) > 1
),
newest AS (
  FROM keyed ANTI JOIN several ON hash(app_name, eval_set_id, eval_id, turn, metric_name) = of_turn
  UNION ALL (
    FROM keyed SEMI JOIN several ON hash(app_name, eval_set_id, eval_id, turn, metric_name) = of_turn
    QUALIFY row_number() OVER (
      PARTITION BY app_name, eval_set_id, eval_id, turn, metric_name
      ORDER BY turn_revision DESC, scored_at DESC
    ) = 1
  )
)
SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
       list_sort(list_distinct(list(metric_name) FILTER (status IN ('failed', 'crashed'))))
         AS failed_metrics,
       list_sort(list_distinct(list(metric_name) FILTER (status = 'passed'))) AS passed_metrics,
       bool_or(status IN ('failed', 'crashed')) AS failed, bool_or(status = 'passed') AS passed
FROM newest
GROUP BY ALL;

-- Turns as filters, conditions (`--where`) and recipes see them: the newest revision of each, with its
-- tools, its session, feedback and verdicts.  `outcome`: failed if any metric failed or the run did, passed
-- if all that gave a verdict passed, else unknown.  `weight`: how many turns of the traffic it represents.
CREATE OR REPLACE VIEW curation_turns AS
SELECT
  t.app_name AS app, t.turn_revision AS revision,
  t.* EXCLUDE (turn_revision, inclusion_probability, actual_json, expected_json, event_id, seq),
  coalesce(t.inclusion_probability, 1)           AS inclusion_probability,
  1 / coalesce(t.inclusion_probability, 1)       AS weight,
  coalesce(k.tools, [])                          AS tools,
  array_to_string(coalesce(k.tools, []), ' > ')  AS tool_path,
  coalesce(k.failed_calls, 0)                    AS failed_calls,
  c.user_id, c.service, c.framework,
  coalesce(f.complaints, 0)                      AS complaints,
  coalesce(f.praises, 0)                         AS praises,
  coalesce(v.failed_metrics, [])                 AS failed_metrics,
  CASE
    WHEN t.status IN ('error', 'incomplete') OR v.failed THEN 'failed'
    WHEN v.passed THEN 'passed'
    ELSE 'unknown'
  END                                            AS outcome
FROM latest_turns t
LEFT JOIN v_turn_tools k USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN latest_cases c USING (app_name, eval_set_id, eval_id)
LEFT JOIN v_turn_feedback f USING (app_name, eval_set_id, eval_id, invocation_id)
LEFT JOIN v_turn_verdicts v USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
WHERE coalesce(t.inclusion_probability, 1) > 0;

-- Is every turn accounted for?  For each producer: recorded = landed + dropped + missing.  Landed counts
-- all consumed numbers, including dead letters and erased turns; missing counts numbers that were assigned
-- but have not arrived, listed in `gaps`.  Until a producer has closed, what it numbered after its last
-- manifest (at most 30 seconds old) is unknown here.
CREATE OR REPLACE VIEW v_completeness AS
WITH stated AS (
  SELECT producer_id, max(highest_seq) AS highest_seq, bool_or(closing) AS closed,
         max(stated_at) AS stated_at
  FROM manifests
  GROUP BY producer_id
),
drops AS (
  SELECT producer_id, map_from_entries(list((reason, turns) ORDER BY reason)) AS dropped_by_reason,
         least(sum(turns), 9007199254740992)::BIGINT AS dropped
  FROM (
    SELECT m.producer_id, d.key AS reason, max(d.value::BIGINT) AS turns
    FROM manifests m, json_each(m.drops) d
    GROUP BY ALL
  )
  GROUP BY producer_id
),
numbers AS (
  SELECT producer_id, first_seq, last_seq FROM consumed_ranges
  UNION ALL
  -- The end of what was given, so that a gap before it shows.
  SELECT producer_id, highest_seq + 1, highest_seq FROM stated
),
steps AS (
  SELECT *, coalesce(max(last_seq) OVER (
    PARTITION BY producer_id ORDER BY first_seq, last_seq
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), 0) AS before
  FROM numbers
),
counted AS (
  SELECT producer_id, max(last_seq) AS highest_seq,
         coalesce(sum(first_seq - before - 1) FILTER (first_seq > before + 1), 0)::BIGINT AS missing,
         list({'first': before + 1, 'last': first_seq - 1} ORDER BY first_seq)
           FILTER (first_seq > before + 1) AS gaps
  FROM steps
  GROUP BY producer_id
)
SELECT producer_id,
       c.highest_seq + coalesce(d.dropped, 0) AS recorded,
       c.highest_seq - c.missing              AS landed,
       coalesce(d.dropped, 0)                 AS dropped,
       c.missing,
       d.dropped_by_reason,
       c.gaps,
       coalesce(s.closed, false)              AS closed,
       s.stated_at
FROM counted c LEFT JOIN stated s USING (producer_id) LEFT JOIN drops d USING (producer_id)
ORDER BY c.missing DESC, producer_id;

-- The items whose turn is still there, each with the probability of the largest draw that it is in.  outdated: it was asked, called or answered something else when the item
-- was queued, so that decisions on it say nothing about the turn as it is now.
CREATE OR REPLACE VIEW v_reviewed_turns AS
WITH items AS (
  SELECT * REPLACE (max(inclusion_probability) OVER (PARTITION BY item_id) AS inclusion_probability)
  FROM review_items
  QUALIFY row_number() OVER (PARTITION BY item_id ORDER BY added_at) = 1
),
newest AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, max(turn_revision) AS newest
  FROM turns SEMI JOIN review_items USING (app_name, eval_set_id, eval_id, invocation_id)
  GROUP BY ALL
),
placed AS (
  FROM items JOIN newest USING (app_name, eval_set_id, eval_id, invocation_id)
),
revised AS (
  SELECT DISTINCT app_name, eval_set_id, eval_id, invocation_id FROM placed WHERE newest > turn_revision
),
calls AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         list({'name': tool_name, 'arguments': arguments, 'result': result} ORDER BY call_index) AS calls
  FROM tool_calls SEMI JOIN revised USING (app_name, eval_set_id, eval_id, invocation_id)
  GROUP BY ALL
),
contents AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         {'user': user_text, 'final': final_text, 'calls': calls} AS content
  FROM turns SEMI JOIN revised USING (app_name, eval_set_id, eval_id, invocation_id)
  LEFT JOIN calls USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
)
SELECT i.* EXCLUDE (newest),
       i.newest > i.turn_revision AND seen.content IS DISTINCT FROM newer.content AS outdated
FROM placed i
LEFT JOIN contents seen USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN contents newer ON newer.app_name = i.app_name AND newer.eval_set_id = i.eval_set_id
  AND newer.eval_id = i.eval_id AND newer.invocation_id = i.invocation_id AND newer.turn_revision = i.newest;

-- The current decision of each reviewer on each item; undone decisions do not count.
CREATE OR REPLACE VIEW v_item_decisions AS
SELECT r.* FROM reviews r ANTI JOIN reviews u ON u.undoes = r.review_id
WHERE r.action IN ('approve', 'edit', 'reject', 'skip')
QUALIFY row_number() OVER (PARTITION BY r.item_id, r.reviewer ORDER BY r.reviewed_at DESC) = 1;

-- Those decisions that are about turns as they are now.
CREATE OR REPLACE VIEW v_review_decisions AS
SELECT d.* FROM v_item_decisions d
SEMI JOIN (FROM v_reviewed_turns WHERE NOT outdated) t ON t.item_id = d.item_id;

-- The current state of each item.  state: open; approved, edited or rejected by the first reviewer; agreed or
-- disagreed once all needed reviewers have decided; settled once a further reviewer has made a majority;
-- skipped by all; outdated if the turn has changed since.  To approve what another edits is to disagree.
-- verdict: good (approved or edited) or bad; NULL without a decision or a majority.  after: the newest edit, if
-- that is the decision.
CREATE OR REPLACE VIEW v_review_items AS
WITH said AS (
  SELECT item_id,
         count(*) FILTER (action = 'approve') AS approved,
         count(*) FILTER (action = 'edit') AS edited,
         count(*) FILTER (action = 'reject') AS rejected,
         count(*) FILTER (action = 'skip') AS skipped,
         arg_max(after, reviewed_at) FILTER (action = 'edit') AS after,
         list(DISTINCT reviewer ORDER BY reviewer) FILTER (action <> 'skip') AS reviewers,
         max(reviewed_at) AS reviewed_at
  FROM v_item_decisions GROUP BY item_id
),
counted AS (
  SELECT *, approved + edited + rejected AS decisions, greatest(approved, edited, rejected) AS most,
         CASE
           WHEN decisions = 0 OR (approved = most)::INT + (edited = most)::INT + (rejected = most)::INT > 1 THEN NULL
           WHEN approved = most THEN 'approved' WHEN edited = most THEN 'edited' ELSE 'rejected'
         END AS decision
  FROM said
)
SELECT i.* EXCLUDE (outdated),
       CASE
         WHEN outdated THEN 'outdated'
         WHEN coalesce(s.decisions, 0) = 0 THEN if(coalesce(skipped, 0) > 0, 'skipped', 'open')
         WHEN most = s.decisions THEN if(needed > 1 AND most >= needed, 'agreed', decision)
         WHEN s.decisions > needed AND decision IS NOT NULL THEN 'settled'
         ELSE 'disagreed'
       END AS state,
       CASE WHEN NOT outdated AND decision IS NOT NULL THEN if(decision = 'rejected', 'bad', 'good') END AS verdict,
       coalesce(s.decisions, 0) AS decisions, if(decision = 'edited', s.after, NULL) AS after,
       coalesce(reviewers, []) AS reviewers, s.reviewed_at,
       NOT outdated AND (state IN ('open', 'skipped', 'disagreed') OR coalesce(s.decisions, 0) < needed) AS waiting
FROM v_reviewed_turns i LEFT JOIN counted s USING (item_id);

-- The newest state of each trial of an experiment.
CREATE OR REPLACE VIEW latest_units AS
SELECT * FROM units
QUALIFY row_number() OVER (
  PARTITION BY experiment_id, eval_id, trial ORDER BY attempt DESC, written_at DESC, state = 'begun'
) = 1;
