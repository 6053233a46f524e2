"""Compacting what each batch adds a row to: where to go on reading, and which numbers were consumed."""

from evaltap.evaluator.store import Store


def compact(store: Store) -> None:
    """Keep the latest offset of each partition, and consumed numbers as few ranges, in one transaction."""
    with store.transaction():
        store.execute(_ONLY_LATEST_OFFSETS)
        store.execute(_MERGE_RANGES)
        store.execute("DELETE FROM consumed_ranges")
        store.execute("INSERT INTO consumed_ranges FROM merged_ranges")
        store.execute("DROP TABLE merged_ranges")


_ONLY_LATEST_OFFSETS = """
DELETE FROM offsets WHERE rowid NOT IN (
  SELECT arg_max(rowid, (landed_at, rowid)) FROM offsets GROUP BY topic, partition_number
)
"""

# A range opens where nothing before it reaches up to its first number.
_MERGE_RANGES = """
CREATE OR REPLACE TEMP TABLE merged_ranges AS
WITH marked AS (
  SELECT *, coalesce(first_seq - 1 > max(last_seq) OVER (
    PARTITION BY producer_id ORDER BY first_seq, last_seq
    ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING
  ), true) AS opens
  FROM consumed_ranges
),
numbered AS (
  SELECT *, count_if(opens) OVER (
    PARTITION BY producer_id ORDER BY first_seq, last_seq ROWS UNBOUNDED PRECEDING
  ) AS number
  FROM marked
)
SELECT producer_id, min(first_seq), max(last_seq), max(landed_at) FROM numbered
GROUP BY producer_id, number
"""
