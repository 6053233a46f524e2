-- The numbers of records whose turns were erased on somebody's request; made by the first erasure.
CREATE TABLE IF NOT EXISTS erasures (
  producer_id VARCHAR NOT NULL,
  seq         BIGINT NOT NULL,
  erased_at   TIMESTAMP NOT NULL
);
