-- The landed turns of the cases that a report shows in full, as `assemble` takes them.
WITH shown AS (FROM latest_turns SEMI JOIN report_cases USING (app_name, eval_set_id, eval_id))
SELECT c.app_name, c.eval_set_id, c.eval_id, c.case_json,
       list(t.actual_json   ORDER BY t.started_at NULLS FIRST, t.first_landed_seq),
       list(t.expected_json ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM latest_cases c JOIN shown t USING (app_name, eval_set_id, eval_id)
GROUP BY c.app_name, c.eval_set_id, c.eval_id, c.case_json
