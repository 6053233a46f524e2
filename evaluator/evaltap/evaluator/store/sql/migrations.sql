-- What files of an older layout lack, or have and need no more; run once, after tables.sql, when such a file is opened.
ALTER TABLE rubric_votes ADD COLUMN IF NOT EXISTS evidence VARCHAR;
ALTER TABLE rubric_votes ADD COLUMN IF NOT EXISTS evidence_found BOOLEAN;
ALTER TABLE rubric_votes ADD COLUMN IF NOT EXISTS confidence DOUBLE;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS sampling_reason VARCHAR;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS inclusion_probability DOUBLE;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS agent_name VARCHAR;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS version VARCHAR;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS environment VARCHAR;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS tags VARCHAR[];
ALTER TABLE turns ADD COLUMN IF NOT EXISTS run VARCHAR;
ALTER TABLE run_metrics ADD COLUMN IF NOT EXISTS references_digest VARCHAR;
ALTER TABLE units ADD COLUMN IF NOT EXISTS ended_by VARCHAR;
ALTER TABLE units ADD COLUMN IF NOT EXISTS partners_usd DOUBLE;
ALTER TABLE turns_by_minute ADD COLUMN IF NOT EXISTS priced DOUBLE;
ALTER TABLE turns_by_hour ADD COLUMN IF NOT EXISTS priced DOUBLE;
ALTER TABLE case_index ADD COLUMN IF NOT EXISTS unpriced INTEGER;
DELETE FROM page_marks;  -- summaries are built again
DROP TABLE IF EXISTS job_refusals;
DROP TABLE IF EXISTS jobs;

-- What was consumed before ranges were kept, as far as rows still tell.
INSERT INTO consumed_ranges
SELECT producer_id, min(seq), max(seq), current_timestamp::TIMESTAMP
FROM (
  SELECT producer_id, seq, seq - row_number() OVER (PARTITION BY producer_id ORDER BY seq) AS island
  FROM (
    SELECT producer_id, seq FROM turns
    UNION SELECT producer_id, seq FROM erasures
    UNION
    SELECT named->>'producer_id', try_cast(named->>'seq' AS BIGINT)
    FROM (
      SELECT json_group_object(pair->>0, pair->>1) AS named
      FROM (SELECT rowid AS letter, unnest(record_headers::JSON[]) AS pair FROM dead_letters)
      GROUP BY letter
    )
    WHERE try_cast(named->>'seq' AS BIGINT) IS NOT NULL AND named->>'producer_id' IS NOT NULL
  )
)
WHERE NOT EXISTS (FROM consumed_ranges)
GROUP BY producer_id, island;
