"""Numbers of records as ranges: a producer numbers them without gaps, so millions are a few ranges."""

from collections.abc import Iterable
from typing import TypeAlias

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
