-- What producers left out in a window, by reason, and how much of it no kept turn can stand for.
-- `bucket_stated`, `bucket_started`: the time by which it is told apart; $since, $until: the window.
-- Manifests count from the start of a producer, so what is new is the step from one to the next.  They stay when
-- sessions are pruned.
-- What was dropped after the draw stands for those that the draw left out, as a kept turn does.
WITH kept AS (
  SELECT producer_id, app_name, {bucket_started} AS bucket, coalesce(sampling_reason, 'head') AS reason,
         1 / coalesce(inclusion_probability, 1) AS weight,
         min(weight) OVER (PARTITION BY producer_id) AS of_redacted,
         -- Without the share of a rate limit, which a burst is beyond.
         min(weight) OVER (PARTITION BY producer_id, reason) AS of_burst
  FROM latest_turns
  WHERE coalesce(inclusion_probability, 1) > 0
    AND ($since::TIMESTAMP IS NULL OR started_at >= $since)
    AND ($until::TIMESTAMP IS NULL OR started_at < $until)
),
stated AS (
  SELECT producer_id, stated_at, d.key AS reason, d.value::BIGINT AS turns
  FROM manifests, json_each(drops) AS d
),
steps AS (
  SELECT producer_id, stated_at, reason, turns - coalesce(max(turns) OVER (
    PARTITION BY producer_id, reason ORDER BY stated_at, turns
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), 0) AS turns
  FROM stated
),
dropped AS (
  SELECT producer_id, {bucket_stated} AS bucket, reason, sum(turns)::DOUBLE AS turns
  FROM steps
  WHERE turns > 0
    AND stated_at >= coalesce(
      (SELECT max(value::TIMESTAMP) FROM meta WHERE key = 'pruned_before'), '-infinity'::TIMESTAMP
    )
    AND ($since::TIMESTAMP IS NULL OR stated_at >= $since)
    AND ($until::TIMESTAMP IS NULL OR stated_at < $until)
  GROUP BY ALL
),
-- Turns that the draw of a rule left out are spoken for by those that it kept, here or in another
-- process of the application.
reasons AS (
  SELECT DISTINCT producer_id, reason
  FROM (SELECT DISTINCT producer_id, app_name FROM kept)
  JOIN (SELECT DISTINCT app_name, reason FROM kept) USING (app_name)
  UNION
  SELECT DISTINCT d.producer_id, k.reason FROM dropped d, kept k
  WHERE d.producer_id NOT IN (SELECT producer_id FROM kept)
),
-- Of each producer, and of all: with NULL as the producer.
standing AS (
  SELECT producer_id, bucket, sum(weight) AS turns, avg(weight) AS weight, min(of_redacted) AS of_redacted,
         avg(of_burst) AS of_burst
  FROM kept GROUP BY GROUPING SETS ((producer_id, bucket), (bucket))
)
SELECT d.producer_id, d.bucket, d.reason,
       d.turns * CASE
         -- The share of a rate limit is part of the probability; its bursts have a reason of their own.
         WHEN d.reason = 'rate_limited' THEN 0
         WHEN d.reason = 'sampled_out' OR d.reason LIKE 'sampled_out:%'
           THEN (r.reason IS NULL)::INTEGER
         WHEN d.reason = 'rate_limited:burst' THEN coalesce(s.of_burst, e.of_burst, 1)
         -- With rules, sessions are redacted before they are decided, if a rule could still keep them.
         WHEN d.reason IN ('redactor', 'redaction_failed') THEN coalesce(s.of_redacted, e.of_redacted, 1)
         WHEN d.reason IN ('too_large', 'log_unavailable') THEN coalesce(s.weight, e.weight, 1)
         ELSE 1
       END AS uncovered,
       s.turns, e.turns
FROM dropped d
LEFT JOIN reasons r ON r.producer_id = d.producer_id
  AND r.reason = if(d.reason = 'sampled_out', 'head', substr(d.reason, 13))
LEFT JOIN standing s ON s.producer_id = d.producer_id AND s.bucket IS NOT DISTINCT FROM d.bucket
LEFT JOIN standing e ON e.producer_id IS NULL AND e.bucket IS NOT DISTINCT FROM d.bucket
ORDER BY ALL
