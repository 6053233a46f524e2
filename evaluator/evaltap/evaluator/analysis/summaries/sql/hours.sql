-- Hours as the sum of their minutes; minutes: a condition for those to add up.
INSERT INTO turns_by_hour
SELECT date_trunc('hour', bucket), app_name, sum(turns), sum(errors), sum(weight), sum(cost_usd),
       sum(input_tokens), sum(output_tokens), sum(incomplete), sum(priced)
FROM turns_by_minute WHERE {minutes}
GROUP BY ALL;

INSERT INTO scores_by_hour
SELECT date_trunc('hour', bucket), app_name, metric_name, metric_digest, status, sum(n),
       sum(score_sum), sum(w), sum(w2), sum(scored_w)
FROM scores_by_minute WHERE {minutes}
GROUP BY ALL;

INSERT INTO latency_by_hour
SELECT date_trunc('hour', bucket), app_name, bin, sum(n), sum(w)
FROM latency_by_minute WHERE {minutes}
GROUP BY ALL;

INSERT INTO tools_by_hour
SELECT date_trunc('hour', bucket), app_name, tool_name, bin, sum(calls), sum(errors)
FROM tools_by_minute WHERE {minutes}
GROUP BY ALL;

INSERT INTO left_out_by_hour
SELECT date_trunc('hour', bucket), app_name, kind, tool_name, sum(n), sum(errors), sum(cost_usd)
FROM left_out_by_minute WHERE {minutes}
GROUP BY ALL;
