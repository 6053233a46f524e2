-- What is beside an estimate: raw counts, what has no score, what is uncovered.  `slices`: the columns of the slice;
-- `bucket`: the finest time of the slice, `spread`: whether drops that belong to no turn are in it.
-- $producers, $buckets, $ratios: the turns that could not be recorded, of `coverage`.
WITH left_out AS (
  SELECT unnest($producers::VARCHAR[]) AS producer_id, unnest($buckets::VARCHAR[]) AS bucket,
         unnest($ratios::DOUBLE[]) AS ratio
)
SELECT {slices} metric, metric_digest,
       count(*) FILTER (counts) AS turns,
       count(*) FILTER (counts AND has) AS having,
       coalesce(
         sum(1 / probability) FILTER (NOT counts AND NOT uncovered)
           / sum(1 / probability) FILTER (NOT uncovered), 0
       ) AS not_counted,
       sum(score / probability) / sum(1 / probability) FILTER (score IS NOT NULL) AS mean_score,
       coalesce(
         sum(if(uncovered, 1, coalesce(u.ratio, 0) + if({spread}, coalesce(o.ratio, 0), 0)) / probability)
           / sum(1 / probability) FILTER (NOT uncovered), 1e12
       ) AS uncovered,
       max(scored_at) AS scored_at
FROM (SELECT *, {bucket} AS bucket FROM {turns}) t
LEFT JOIN left_out u
  ON u.producer_id = t.producer_id AND u.bucket IS NOT DISTINCT FROM t.bucket
LEFT JOIN left_out o
  ON o.producer_id = $every AND o.bucket IS NOT DISTINCT FROM t.bucket
GROUP BY {slices} metric, metric_digest
ORDER BY {slices} metric, scored_at, metric_digest
