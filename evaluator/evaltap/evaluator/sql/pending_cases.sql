-- Latest case revisions that lack a score for some of the wanted metric versions, with their turns.
-- $digests: metric digests; $retry: also those whose score could not be had (not_evaluated, error).
WITH wanted AS (SELECT unnest($digests::VARCHAR[]) AS metric_digest),
done AS (
  SELECT app_name, eval_set_id, eval_id, revision, metric_digest
  FROM scores
  WHERE metric_digest IN $digests::VARCHAR[]
    AND (status IN ('passed', 'failed') OR NOT $retry::BOOLEAN)
),
missing AS (
  SELECT c.app_name, c.eval_set_id, c.eval_id, c.revision, c.case_json,
         list(w.metric_digest) AS digests
  FROM latest_cases c CROSS JOIN wanted w
  WHERE NOT EXISTS (
    FROM done d
    WHERE d.app_name = c.app_name AND d.eval_set_id = c.eval_set_id AND d.eval_id = c.eval_id
      AND d.revision = c.revision AND d.metric_digest = w.metric_digest
  )
  GROUP BY ALL
)
SELECT m.app_name, m.eval_set_id, m.eval_id, m.revision, m.digests, m.case_json,
       list(t.turn_revision ORDER BY t.started_at NULLS FIRST, t.first_landed_seq),
       list(t.actual_json   ORDER BY t.started_at NULLS FIRST, t.first_landed_seq),
       list(t.expected_json ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM missing m JOIN latest_turns t USING (app_name, eval_set_id, eval_id)
GROUP BY m.app_name, m.eval_set_id, m.eval_id, m.revision, m.digests, m.case_json
