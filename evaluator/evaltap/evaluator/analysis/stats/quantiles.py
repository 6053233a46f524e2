"""Quantiles of all traffic from sampled turns, with 95 % intervals."""

from collections.abc import Callable, Sequence
from functools import cache
from typing import NamedTuple

from evaltap.evaluator.analysis.stats.estimate import Estimate
from evaltap.evaluator.analysis.stats.intervals import Interval


class Quantile(NamedTuple):
    """A quantile in the unit of its values, with its interval for the process and for this traffic."""

    value: float
    process: Interval
    traffic: Interval


def quantile(
    values: Sequence[float], share: float, below: Callable[[float], Estimate]
) -> Quantile | None:
    """Return the weighted quantile, by inverting the estimated shares of turns at or below a value.

    `values` are the distinct values, ascending; `below(x)` estimates the share of turns with at most x, and
    is called about 4·log2(values) times.  The interval contains the values whose share may be the requested
    one (Woodruff, Journal of the American Statistical Association 47, 1952).
    """
    if not values:
        return None
    at = cache(lambda place: below(values[place]))

    def first(reaches: Callable[[Estimate], float], start: int, end: int) -> int:
        while start < end:
            middle = (start + end) // 2
            if reaches(at(middle)) >= share:
                end = middle
            else:
                start = middle + 1
        return start

    last = len(values) - 1
    place = first(lambda one: one.rate.value, 0, last)

    def interval(ends: Callable[[Estimate], Interval]) -> Interval:
        low = first(lambda one: ends(one).high, 0, place)
        high = first(lambda one: ends(one).low, place, last)
        return Interval(values[low], values[high])

    return Quantile(
        values[place], interval(lambda one: one.rate.interval), interval(lambda one: one.traffic)
    )
