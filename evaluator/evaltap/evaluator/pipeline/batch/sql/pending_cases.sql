-- Latest case revisions that lack a score for some of the wanted metric versions.
-- Parts of a query: it goes on after newest.sql, and these_scores, the scores to look at.
-- $digests: metric digests; $retry: also those whose score could not be had (not_evaluated, error), of crashed
-- cases those with such a turn.
-- $feedback: the digests whose metrics read feedback; $complaints: rules look for it.
-- $with_references: for each digest the name of its metric if that reads references and has none; else empty.
-- `unless_left_out`: a condition on c and w that is true of what no rule has left out.
-- A case with a failed run is crashed under every metric: what else was said of it is older than that rule.
wanted AS (
  SELECT unnest($digests::VARCHAR[]) AS metric_digest, unnest($with_references::VARCHAR[]) AS with_references
),
failed_runs AS (
  SELECT DISTINCT app_name, eval_set_id, eval_id
  FROM newest_turns
  WHERE status IN ('error', 'incomplete')
),
tried_again AS (
  SELECT app_name, eval_set_id, eval_id, metric_digest
  FROM (
    SELECT app_name, eval_set_id, eval_id, metric_digest,
           arg_max(status, (turn_revision, scored_at)) AS status
    FROM turn_scores SEMI JOIN (FROM these_scores WHERE status = 'crashed')
      USING (app_name, eval_set_id, eval_id, metric_digest)
    WHERE $retry::BOOLEAN
    GROUP BY app_name, eval_set_id, eval_id, metric_digest,
             if(invocation_id = '', turn_index::VARCHAR, invocation_id)
  )
  WHERE status IN ('not_evaluated', 'error')
),
-- What feedback that landed later may change.
outdated AS (
  SELECT s.app_name, s.eval_set_id, s.eval_id, s.metric_digest
  FROM these_scores s JOIN feedback f ON {is_about_scored}
  WHERE s.metric_digest IN $feedback::VARCHAR[]
  GROUP BY ALL HAVING max(f.landed_at) > max(s.scored_at)
  UNION ALL
  SELECT app_name, eval_set_id, eval_id, metric_digest
  FROM (
    FROM sampling_decisions SEMI JOIN (SELECT eval_id FROM feedback WHERE NOT positive) USING (eval_id)
    WHERE $complaints::BOOLEAN
    QUALIFY row_number() OVER (
      PARTITION BY app_name, eval_set_id, eval_id, invocation_id, turn_revision, metric_digest
      ORDER BY decided_at DESC
    ) = 1
  ) d
  -- Of a turn that was scored, too: otherwise it would weigh as before, beside those that are scored by then.
  WHERE probability < 1 AND EXISTS (
    FROM feedback f
    WHERE {is_about_decided} AND NOT f.positive AND f.landed_at > d.decided_at
  )
),
done AS (
  SELECT app_name, eval_set_id, eval_id, revision, metric_digest
  FROM these_scores
  WHERE metric_digest IN $digests::VARCHAR[]
    AND (status IN ('passed', 'failed', 'crashed') OR NOT $retry::BOOLEAN)
    AND (
      status <> 'crashed'
      OR (app_name, eval_set_id, eval_id, metric_digest) NOT IN (FROM tried_again)
    )
    AND (
      status IN ('crashed', 'error')
      OR (app_name, eval_set_id, eval_id) NOT IN (FROM failed_runs)
    )
    AND (app_name, eval_set_id, eval_id, metric_digest) NOT IN (FROM outdated)
),
-- Without references, what an experiment scored against those of its set would lose its verdict.
compared AS (
  SELECT DISTINCT s.app_name, s.eval_set_id, s.eval_id, s.revision, s.metric_name
  FROM these_scores s JOIN run_metrics m USING (run_id, metric_digest)
  SEMI JOIN units USING (app_name, eval_set_id, eval_id)
  WHERE m.references_digest IS NOT NULL
),
missing AS (
  SELECT c.app_name, c.eval_set_id, c.eval_id, c.revision, list(w.metric_digest) AS digests
  FROM newest_cases c CROSS JOIN wanted w
  WHERE NOT EXISTS (
    FROM done d
    WHERE d.app_name = c.app_name AND d.eval_set_id = c.eval_set_id AND d.eval_id = c.eval_id
      AND d.revision = c.revision AND d.metric_digest = w.metric_digest
  )
  -- Such a run is no evidence: a tool call had no recorded result, or the simulated user failed.
  AND (c.app_name, c.eval_set_id, c.eval_id) NOT IN (
    SELECT app_name, eval_set_id, eval_id FROM units WHERE state = 'invalid'
  )
  AND (c.app_name, c.eval_set_id, c.eval_id, c.revision, w.with_references) NOT IN (FROM compared)
  {unless_left_out}
  GROUP BY ALL
)
