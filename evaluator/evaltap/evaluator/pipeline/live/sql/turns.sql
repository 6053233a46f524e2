-- Landed turns by application and model: how many, as recorded, and latency and cost of the traffic they stand for.
SELECT app_name, coalesce(models[1], '') AS model, count(*),
       sum(cost_usd / greatest(coalesce(inclusion_probability, 1), 1e-9)),
       sum(latency_ms / 1000 / greatest(coalesce(inclusion_probability, 1), 1e-9)),
       {buckets}
FROM latest_turns WHERE coalesce(inclusion_probability, 1) > 0
GROUP BY ALL
