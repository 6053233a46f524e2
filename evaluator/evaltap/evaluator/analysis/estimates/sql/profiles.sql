-- Sessions as estimators see them, alike ones together.  `slices`: the columns of the slice.
WITH cells AS MATERIALIZED (
  SELECT {slices} metric, metric_digest, session, recorded, scored, by_turn, count(*) AS turns,
         sum(has::DOUBLE) AS total, sum(pow(has::DOUBLE, 2)) AS squares
  FROM {turns}
  WHERE counts
  GROUP BY ALL
),
-- Nearly every session has one cell.  A list of each would have to stay in memory; these columns need not.
sessions AS MATERIALIZED (
  SELECT {slices} metric, metric_digest, session, count(*) AS cells, any_value(recorded) AS recorded,
         any_value(scored) AS scored, any_value(by_turn) AS by_turn, any_value(turns) AS turns,
         any_value(total) AS total, any_value(squares) AS squares
  FROM cells
  GROUP BY ALL
),
simple AS (
  SELECT {slices} metric, metric_digest, recorded, turns, total, squares, scored, by_turn, count(*) AS sessions
  FROM sessions
  WHERE cells = 1
  GROUP BY ALL
),
mixed AS (
  SELECT {slices} metric, metric_digest,
         list([recorded, turns, total, squares, scored, by_turn::DOUBLE] ORDER BY recorded, scored) AS cells
  FROM cells SEMI JOIN (
    SELECT row({slices} metric, metric_digest, session) AS key FROM sessions WHERE cells > 1
  ) AS several ON row({slices} metric, metric_digest, session) = several.key  -- NULLs in rows are equal
  GROUP BY {slices} metric, metric_digest, session
)
SELECT {slices} metric, metric_digest,
       [[recorded, turns, total, squares, scored, by_turn::DOUBLE]] AS cells, sessions
FROM simple
UNION ALL
SELECT {slices} metric, metric_digest, cells, count(*)
FROM mixed
GROUP BY ALL
