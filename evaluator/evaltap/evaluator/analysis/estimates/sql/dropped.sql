-- What producers left out in a window, by reason, and how much of it no kept turn can stand for.
-- `bucket_stated`, `bucket_started`: the time by which it is told apart; $since, $until: the window.
-- Manifests count from the start of a producer, so what is new is the step from one to the next.
WITH kept AS (
  SELECT producer_id, app_name, {bucket_started} AS bucket,
         coalesce(sampling_reason, 'head') AS reason, coalesce(inclusion_probability, 1) AS probability
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
standing AS (
  SELECT producer_id, bucket, sum(1 / probability) AS turns FROM kept GROUP BY ALL
)
SELECT d.producer_id, d.bucket, d.reason,
       d.turns * CASE
         -- The share of a rate limit is part of the probability; its bursts have a reason of their own.
         WHEN d.reason = 'rate_limited' THEN 0
         WHEN d.reason = 'sampled_out' OR d.reason LIKE 'sampled_out:%'
           THEN (r.reason IS NULL)::INTEGER
         ELSE 1
       END AS uncovered,
       s.turns, (SELECT sum(a.turns) FROM standing a WHERE a.bucket IS NOT DISTINCT FROM d.bucket)
FROM dropped d
LEFT JOIN reasons r ON r.producer_id = d.producer_id
  AND r.reason = if(d.reason = 'sampled_out', 'head', substr(d.reason, 13))
LEFT JOIN standing s ON s.producer_id = d.producer_id AND s.bucket IS NOT DISTINCT FROM d.bucket
ORDER BY ALL
