"""The difference between two rates of separate traffic, from their intervals."""

import math
from statistics import NormalDist
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.intervals import Interval
from evaltap.evaluator.analysis.stats.student import Z95

_POWER: Final = 0.8
_NORMAL: Final = NormalDist()


class Rate(NamedTuple):
    """A rate from 0 to 1 with its 95 % interval."""

    value: float
    interval: Interval


class Difference(NamedTuple):
    """Base minus head."""

    value: float
    interval: Interval
    """The 95 % interval."""
    p_value: float
    """One-sided, of the hypothesis "head is no lower"."""


def difference(base: Rate, head: Rate) -> Difference:
    """Return the drop from base to head by square and add (Newcombe 1998; Zou and Donner 2008).

    The p-value treats the end of the interval nearer to zero as 1.96 standard errors away, so that test and
    interval agree.
    """
    value = base.value - head.value
    below = math.hypot(base.value - base.interval.low, head.interval.high - head.value)
    above = math.hypot(base.interval.high - base.value, head.value - head.interval.low)
    facing = below if value > 0 else above
    p_value = 1 - _NORMAL.cdf(value / facing * Z95) if facing else (0.5 if not value else 0.0)
    interval = Interval(max(-1.0, value - below), min(1.0, value + above))
    return Difference(value, interval, p_value)


def detectable_difference(base: Rate, head: Rate, level: float) -> float:
    """Return the drop that a test at `level` would find in 80 of 100 comparisons like this one."""
    spread = math.hypot(_half(base), _half(head)) / Z95
    return (_NORMAL.inv_cdf(1 - level) + _NORMAL.inv_cdf(_POWER)) * spread


def _half(rate: Rate) -> float:
    return (rate.interval.high - rate.interval.low) / 2
