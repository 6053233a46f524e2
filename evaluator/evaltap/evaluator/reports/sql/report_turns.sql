-- The positions of the landed turns of the cases that a report shows in full.
-- The end of a query: it goes on after newest.sql.
SELECT c.app_name, c.eval_set_id, c.eval_id, c.case_json,
       list(t.landed_seq ORDER BY t.started_at NULLS FIRST, t.first_landed_seq)
FROM newest_cases c JOIN newest_turns t USING (app_name, eval_set_id, eval_id)
GROUP BY c.app_name, c.eval_set_id, c.eval_id, c.case_json
ORDER BY min(t.landed_seq)  -- neighbours are read together
