-- Move staged rows into `scores`: one for each case revision, metric version and run.
-- A run that may write a row twice adds a condition that leaves out what is there.
-- `answered`: an argument after a comma, or nothing: when feedback on the case landed, so that it has a new row.
INSERT INTO scores
SELECT id, run_id, app_name, eval_set_id, eval_id, revision, metric_name, score, status, threshold,
       reason, evaluator_name, evaluator_version, metric_digest, turn_count, $now
FROM (
  SELECT s.*, m.*, md5(concat_ws(
           chr(31), m.run_id, s.app_name, s.eval_set_id, s.eval_id, s.revision, m.metric_digest {answered}
         )) AS id
  FROM staged_scores s
  JOIN run_metrics m ON m.run_id = $run_id AND m.metric_index = s.metric_index
)
