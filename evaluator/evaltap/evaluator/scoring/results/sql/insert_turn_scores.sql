-- Move staged rows into `turn_scores`: one for each turn revision, metric version and run.
-- A run that may write a row twice adds a condition that leaves out what is there.
-- `answered`: as for `scores`.
INSERT INTO turn_scores
SELECT id, run_id, app_name, eval_set_id, eval_id, invocation_id, turn_index, turn_revision,
       metric_name, score, status, threshold, reason, metric_digest, $now
FROM (
  SELECT s.*, m.*, md5(concat_ws(
           chr(31), m.run_id, s.app_name, s.eval_set_id, s.eval_id, s.turn_key,
           s.turn_revision, m.metric_digest {answered}
         )) AS id
  FROM staged_turn_scores s
  JOIN run_metrics m ON m.run_id = $run_id AND m.metric_index = s.metric_index
) staged
