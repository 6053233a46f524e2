-- The latest revision of every landed case with the positions of its latest turns, in the order of first landing.
SELECT c.app_name, c.eval_set_id, c.eval_id, c.case_json,
       list(t.landed_seq ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM latest_cases c JOIN latest_turns t USING (app_name, eval_set_id, eval_id)
GROUP BY c.app_name, c.eval_set_id, c.eval_id, c.case_json
ORDER BY min(t.first_landed_seq)
