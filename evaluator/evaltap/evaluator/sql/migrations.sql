-- What files of an older layout lack; run once, after tables.sql, when such a file is opened.
ALTER TABLE rubric_votes ADD COLUMN IF NOT EXISTS evidence VARCHAR;
ALTER TABLE rubric_votes ADD COLUMN IF NOT EXISTS evidence_found BOOLEAN;
ALTER TABLE rubric_votes ADD COLUMN IF NOT EXISTS confidence DOUBLE;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS sampling_reason VARCHAR;
ALTER TABLE turns ADD COLUMN IF NOT EXISTS inclusion_probability DOUBLE;
