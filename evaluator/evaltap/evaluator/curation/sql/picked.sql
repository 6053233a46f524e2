-- Turns that a pick may take, in its order.  `condition`, `value` (named in the label), `measure` (what comes
-- first), `columns`: that it looks at, `turns`: rows of `curation_turns`, `extra`: CTEs, `joins`; `source`:
-- conditions on all turns; $seed: of the draw.
-- `draw`: uniform in (0, 1], the same for a turn whatever else is stored; over the weight it orders a
-- sample of the traffic (Ohlsson 1998), though some turns were recorded with more probability.
WITH chosen AS (
  SELECT app, eval_set_id, eval_id, invocation_id, revision, weight {columns} FROM ({turns})
  WHERE ($since::TIMESTAMP IS NULL OR started_at >= $since)
    AND ($until::TIMESTAMP IS NULL OR started_at < $until)
    AND ($app::VARCHAR = '' OR app = $app)
    {source}
)
{extra},
taken AS (
  SELECT *,
         ((('0x' || left(sha256($seed::VARCHAR || chr(0) || eval_id || chr(0) || invocation_id), 13))::BIGINT + 1)
           / 4503599627370496) / weight AS draw
  FROM chosen {joins}
  WHERE {condition}
)
SELECT app, eval_set_id, eval_id, invocation_id, {value}::VARCHAR AS value, draw
FROM taken
ORDER BY {measure} draw, app, eval_set_id, eval_id, invocation_id
LIMIT $most
