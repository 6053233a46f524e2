-- The latest revisions of some cases and of their turns.
-- Parts of a query: it goes on after these_cases and these_turns, the rows to look at.
newest_cases AS (
  FROM these_cases
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id ORDER BY revision DESC, landed_at DESC
  ) = 1
),
newest_turns AS (
  SELECT *, min(landed_seq) OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
  ) AS first_landed_seq
  FROM these_turns
  QUALIFY row_number() OVER (
    PARTITION BY app_name, eval_set_id, eval_id, invocation_id
    ORDER BY turn_revision DESC, landed_seq
  ) = 1
)
