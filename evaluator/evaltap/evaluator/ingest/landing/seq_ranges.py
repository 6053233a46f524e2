"""Sequence numbers as ranges: producers number records without gaps, so millions fit into a few ranges."""

from collections.abc import Iterable
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from evaltap.evaluator.store.database import Store

Ranges: TypeAlias = list[tuple[int, int]]
"""First and last number of each range.  `merged` returns them sorted, neither overlapping nor adjacent."""


def merged(ranges: Iterable[tuple[int, int]]) -> Ranges:
    """Return the ranges sorted, with overlapping and adjacent ones merged."""
    found: Ranges = []
    for first, last in sorted(ranges):
        if found and first <= found[-1][1] + 1:
            if last > found[-1][1]:
                found[-1] = (found[-1][0], last)
        else:
            found.append((first, last))
    return found


def size(ranges: Ranges) -> int:
    """Return how many numbers the merged ranges contain."""
    return sum(last - first + 1 for first, last in ranges)


def without(ranges: Ranges, others: Ranges) -> Ranges:
    """Return the numbers of `ranges` that are not in `others`; both are merged."""
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
    """Return the highest number; 0 if there is none."""
    return ranges[-1][1] if ranges else 0


def compact(store: "Store") -> None:
    """Delete old offsets and merge the ranges of consumed sequence numbers, in one transaction."""
    with store.transaction(), store.scratch(_MERGED_RANGES) as merged:
        store.execute(_ONLY_LATEST_OFFSETS)
        store.execute("DELETE FROM consumed_ranges")
        store.execute(f"INSERT INTO consumed_ranges FROM {merged}")


_ONLY_LATEST_OFFSETS = """
DELETE FROM offsets WHERE rowid NOT IN (
  SELECT arg_max(rowid, (landed_at, rowid)) FROM offsets GROUP BY topic, partition_number
)
"""

# A new range starts where no earlier range reaches its first number.
_MERGED_RANGES = """
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
