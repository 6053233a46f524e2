-- What all traffic used, of which the landed turns of the scored cases are a sample (Horvitz and Thompson's totals).
SELECT sum(weight), sum(cost_usd * weight), sum(input_tokens * weight), sum(output_tokens * weight)
FROM (
  SELECT *, 1 / coalesce(inclusion_probability, 1) AS weight
  FROM latest_turns SEMI JOIN {scores} USING (app_name, eval_set_id, eval_id)
  WHERE coalesce(inclusion_probability, 1) > 0
)
