-- Sessions as estimators see them, alike ones together.  `slices`: the columns of the slice.
WITH cells AS (
  SELECT {slices} metric, metric_digest, session, recorded, scored, by_turn, count(*) AS turns,
         sum(has::DOUBLE) AS total, sum(pow(has::DOUBLE, 2)) AS squares
  FROM {turns}
  WHERE counts
  GROUP BY ALL
),
sessions AS (
  SELECT {slices} metric, metric_digest,
         list([recorded, turns, total, squares, scored, by_turn::DOUBLE] ORDER BY recorded, scored) AS cells
  FROM cells
  GROUP BY {slices} metric, metric_digest, session
)
SELECT {slices} metric, metric_digest, cells, count(*)
FROM sessions
GROUP BY ALL
