-- What judges said behind the scores of a report, for the cases that it shows in full.  A turn that
-- was scored before is not judged again: its votes are then those of an earlier run of the same metric.
SELECT v.app_name, v.eval_set_id, v.eval_id, v.metric_name,
       v.invocation_id, v.sample_index, v.rubric_id, v.score, coalesce(v.reason, ''),
       coalesce(v.evidence, ''), v.evidence_found, v.confidence
FROM rubric_votes v
JOIN run_metrics m USING (run_id, metric_name)
JOIN {scores} s USING (app_name, eval_set_id, eval_id, metric_digest)
SEMI JOIN {cases} c USING (app_name, eval_set_id, eval_id)
QUALIFY rank() OVER (
  PARTITION BY v.app_name, v.eval_set_id, v.eval_id, v.metric_name, v.invocation_id
  ORDER BY v.turn_revision DESC, v.run_id = s.run_id DESC, v.run_id DESC
) = 1
ORDER BY v.app_name, v.eval_set_id, v.eval_id, v.metric_name, v.invocation_id, v.sample_index,
         v.rubric_id
