-- The landed turns of the recordings that some runs scored, in the order of their sessions: of each
-- revision of a case the turns as they were when it landed.  Repeats are trials, as in `side_scores`.
WITH trials AS (
  SELECT DISTINCT s.app_name, s.eval_set_id, s.eval_id, s.revision
  FROM scores s JOIN runs r USING (run_id)
  WHERE r.kind IN ('landed', 'live') AND (len($runs) = 0 OR list_contains($runs, s.run_id))
),
landed AS (
  SELECT app_name, eval_set_id, eval_id, revision, max(c.landed_at) AS at
  FROM trials JOIN cases c USING (app_name, eval_set_id, eval_id, revision)
  GROUP BY ALL
),
turns_then AS (
  SELECT t.*, l.revision, min(t.landed_seq) OVER (
    PARTITION BY app_name, eval_set_id, eval_id, l.revision, invocation_id
  ) AS first_landed_seq
  FROM landed l JOIN turns t USING (app_name, eval_set_id, eval_id)
  WHERE t.landed_at <= l.at AND ($version = '' OR t.version = $version)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, l.revision, invocation_id
    ORDER BY turn_revision DESC, landed_seq
  ) = 1
),
named AS (
  SELECT * REPLACE ({eval_set} AS eval_set_id),
         concat_ws(' ', 'revision ' || revision, nullif(repeat, '')) AS trial
  FROM (SELECT *, {repeat} AS repeat FROM turns_then) s
  LEFT JOIN (  -- whether an experiment ran it with a simulated user; NULL: no experiment did
    SELECT app_name, eval_set_id, eval_id, bool_or(ended_by IS NOT NULL) AS simulated
    FROM units GROUP BY ALL
  ) USING (app_name, eval_set_id, eval_id)
)
SELECT app_name, eval_set_id, eval_id, trial, {columns}
FROM named
{only}
ORDER BY app_name, eval_set_id, eval_id, revision, repeat, started_at NULLS FIRST, first_landed_seq
