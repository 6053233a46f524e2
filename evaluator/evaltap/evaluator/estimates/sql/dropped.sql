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
-- A rate limit thins out with a share that is part of the probability, and drops what a burst brings
-- above it, both by one name.  Turns kept with the shares s stand for the sum of 1/s; more arrived, by
-- more than the draws explain: that many were dropped.
limited AS (
  SELECT producer_id, sum(turns) AS turns FROM dropped WHERE reason = 'rate_limited' GROUP BY ALL
),
admitted AS (
  SELECT producer_id, count(*) AS turns, sum(1 / share) AS arrived,
         sum((1 - share) / (share * share)) AS variance
  FROM (
    SELECT producer_id, probability / max(probability) OVER (PARTITION BY producer_id, reason) AS share
    FROM kept SEMI JOIN limited USING (producer_id)
  )
  GROUP BY ALL
),
bursts AS (
  SELECT producer_id, CASE
    WHEN a.turns IS NULL THEN 1
    WHEN a.turns + l.turns - arrived > 2 * sqrt(variance)
      THEN least(1, (a.turns + l.turns - arrived) / l.turns)
    ELSE 0
  END AS share
  FROM limited l LEFT JOIN admitted a USING (producer_id)
),
standing AS (
  SELECT producer_id, bucket, sum(1 / probability) AS turns FROM kept GROUP BY ALL
)
SELECT producer_id, d.bucket, d.reason,
       d.turns * CASE
         WHEN d.reason = 'rate_limited' THEN b.share
         WHEN d.reason = 'sampled_out' OR d.reason LIKE 'sampled_out:%'
           THEN (r.reason IS NULL)::INTEGER
         ELSE 1
       END AS uncovered,
       s.turns, (SELECT sum(a.turns) FROM standing a WHERE a.bucket IS NOT DISTINCT FROM d.bucket)
FROM dropped d
LEFT JOIN bursts b USING (producer_id)
LEFT JOIN reasons r ON r.producer_id = d.producer_id
  AND r.reason = if(d.reason = 'sampled_out', 'head', substr(d.reason, 13))
LEFT JOIN standing s ON s.producer_id = d.producer_id AND s.bucket IS NOT DISTINCT FROM d.bucket
ORDER BY ALL
