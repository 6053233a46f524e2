-- The landed turns of the cases that a report shows in full, as `assemble` takes them.
-- The views say what is latest of all cases; here only the cases that are shown are looked at.
WITH shown_cases AS (
  FROM cases SEMI JOIN report_cases USING (app_name, eval_set_id, eval_id)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC, landed_at DESC
  ) = 1
),
shown_turns AS (
  SELECT *, min(landed_seq) OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
  ) AS first_landed_seq
  FROM turns SEMI JOIN report_cases USING (app_name, eval_set_id, eval_id)
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
    ORDER BY turn_revision DESC, landed_seq
  ) = 1
)
SELECT c.app_name, c.eval_set_id, c.eval_id, c.case_json,
       list(t.actual_json   ORDER BY t.started_at NULLS FIRST, t.first_landed_seq),
       list(t.expected_json ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM shown_cases c JOIN shown_turns t USING (app_name, eval_set_id, eval_id)
GROUP BY c.app_name, c.eval_set_id, c.eval_id, c.case_json
