"""Numbers of records as ranges: a producer numbers them without gaps, so millions are a few ranges."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store

Ranges: TypeAlias = list[tuple[int, int]]
"""First and last number of each range; in order, without overlap or touch, where `merged` made them."""


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return ranges in order; those that overlap or touch have become one."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            if last > found[-1][1]:
                found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def size(ranges: Ranges) -> int:
    """Return how many numbers merged ranges hold."""
    return sum(last - first + 1 for first, last in ranges)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the numbers of merged ranges that are not in others."""
    left: Ranges = []
    for first, last in ranges:
        at = first
        for other_first, other_last in others:
            if other_last < at or other_first > last:
                continue
            if other_first > at:
                left.append((at, other_first - 1))
            at = other_last + 1
        if at <= last:
            left.append((at, last))
    return left


def highest(ranges: Ranges) -> int:
    """Return the highest number, 0 without any."""
    return ranges[-1][1] if ranges else 0


def compact(store: "Store") -> None:
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
