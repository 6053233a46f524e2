-- The sessions in `chosen` with all their turns, as they stand now.
WITH these_cases AS (FROM cases SEMI JOIN {chosen} USING (app_name, eval_set_id, eval_id)),
these_turns AS (FROM turns SEMI JOIN {chosen} USING (app_name, eval_set_id, eval_id)),
{newest},
newest_turn_scores AS (
  FROM turn_scores SEMI JOIN {chosen} USING (app_name, eval_set_id, eval_id)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id, metric_name
    ORDER BY turn_revision DESC, scored_at DESC
  ) = 1
),
verdicts AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, turn_revision,
         list({{'metric': metric_name, 'digest': metric_digest, 'status': status}}
              ORDER BY metric_name) AS verdicts
  FROM newest_turn_scores GROUP BY ALL
),
corrections AS (
  SELECT app_name, eval_set_id, eval_id, invocation_id, arg_max(correction, given_at) AS correction
  FROM v_feedback
  WHERE correction <> '' GROUP BY ALL
)
SELECT app_name, eval_set_id, eval_id, any_value(c.revision), any_value(c.case_json),
       list({{
         'invocation_id': invocation_id, 'trace_id': t.trace_id, 'position': t.landed_seq,
         'verdicts': coalesce(v.verdicts, []), 'correction': k.correction
       }} ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM newest_cases c
JOIN newest_turns t USING (app_name, eval_set_id, eval_id)
LEFT JOIN verdicts v USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
LEFT JOIN corrections k USING (app_name, eval_set_id, eval_id, invocation_id)
GROUP BY app_name, eval_set_id, eval_id
ORDER BY min(t.landed_seq)  -- neighbours are read together
