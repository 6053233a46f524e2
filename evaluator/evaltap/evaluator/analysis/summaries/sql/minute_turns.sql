-- The newest revision of each turn in some minutes: `turns` are all those with a revision there.
CREATE OR REPLACE TEMP TABLE minute_turns AS
WITH theirs AS ({turns}),
later AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, max(turn_revision) AS revision
  FROM turns
  WHERE turn_revision > (SELECT min(turn_revision) FROM theirs)
  GROUP BY ALL
)
SELECT t.app_name, t.eval_set_id, t.eval_id, t.invocation_id, turn_revision, landed_seq,
       date_trunc('minute', turn_at) AS bucket, status, cost_usd, input_tokens, output_tokens,
       if(latency_ms IS NULL, NULL,
          floor(ln(least(greatest(latency_ms, 1), 1e12)) / ln(1.05)))::SMALLINT AS bin,
       if(coalesce(inclusion_probability, 1) > 0, 1 / coalesce(inclusion_probability, 1), NULL) AS weight
FROM theirs t LEFT JOIN later l
  ON (l.app_name, l.eval_set_id, l.eval_id, l.invocation_id)
   = (t.app_name, t.eval_set_id, t.eval_id, t.invocation_id)
WHERE l.revision IS NULL OR t.turn_revision >= l.revision
