-- What each landed turn of the chosen cases used.
SELECT app_name, eval_set_id, eval_id, cost_usd, input_tokens, output_tokens, latency_ms,
       coalesce(status IN ('error', 'incomplete'), false),
       if(inclusion_probability > 0, 1 / inclusion_probability, 1)
FROM latest_turns SEMI JOIN {cases} USING (app_name, eval_set_id, eval_id)
