"""The difference between two rates: of separate traffic, or of two runs over the same cases."""

import math
from collections.abc import Sequence
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.exchange import Pair, Trials
from evaltap.evaluator.analysis.stats.rate import Z95, Interval, Rate, wilson_of

_POWER: Final = 0.8
_NORMAL: Final = NormalDist()


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


def mean_rate(cases: Sequence[Trials]) -> Rate:
    """Return the mean of the pass rates of a fixed set of cases.

    Its Wilson interval has as many trials as its variance is worth.  A Beta(1/2, 1/2) prior accounts for the
    uncertainty of cases that passed in every trial.
    """
    rate = fmean(case.rate for case in cases)
    likely = [(case.passes + 0.5) / (case.trials + 1) for case in cases]
    spread = sum(q * (1 - q) / case.trials for q, case in zip(likely, cases, strict=True))
    centre = fmean(likely)
    trials = centre * (1 - centre) * len(cases) ** 2 / spread
    return Rate(rate, wilson_of(rate, trials), len(cases), trials, "cases")


def detectable_difference(base: Rate, head: Rate, level: float) -> float:
    """Return the drop that a test at `level` would find in 80 of 100 comparisons like this one."""
    return _detectable(math.hypot(_half(base), _half(head)) / Z95, level)


def detectable_drop(pairs: Sequence[Pair], level: float) -> float:
    """Return the same for two runs over the same cases."""
    spread = 0.0
    for (base_passes, base), (head_passes, head) in pairs:
        rate = (base_passes + head_passes + 1) / (base + head + 2)
        spread += rate * (1 - rate) * (1 / base + 1 / head)
    return _detectable(math.sqrt(spread) / len(pairs), level)


def _detectable(spread: float, level: float) -> float:
    return (_NORMAL.inv_cdf(1 - level) + _NORMAL.inv_cdf(_POWER)) * spread


def _half(rate: Rate) -> float:
    return (rate.interval.high - rate.interval.low) / 2


def holm(values: Sequence[float]) -> list[float]:
    """Return adjusted p-values that control the probability of any false alarm (Holm 1979)."""
    found, least = [0.0] * len(values), 0.0
    for done, place in enumerate(_order(values)):
        least = max(least, min(1.0, values[place] * (len(values) - done)))
        found[place] = least
    return found


def benjamini_hochberg(values: Sequence[float]) -> list[float]:
    """Return q-values: the share of false alarms among tests with at most this p-value (1995)."""
    found, most = [0.0] * len(values), 1.0
    for done, place in enumerate(reversed(_order(values))):
        most = min(most, values[place] * len(values) / (len(values) - done))
        found[place] = most
    return found


def fisher(first: int, of_first: int, second: int, of_second: int) -> float:
    """Return Fisher's exact two-sided p-value of `first` of `of_first` against `second` of `of_second`."""
    both = first + second
    every = _log_comb(of_first + of_second, both)

    def chance(one: int) -> float:
        return math.exp(_log_comb(of_first, one) + _log_comb(of_second, both - one) - every)

    seen = chance(first) * (1 + 1e-7)
    values = range(max(0, both - of_second), min(of_first, both) + 1)
    return min(1.0, sum(found for one in values if (found := chance(one)) <= seen))


def _log_comb(of: int, some: int) -> float:
    """Return the logarithm of a binomial coefficient: those of a million trials have 100,000 digits."""
    return math.lgamma(of + 1) - math.lgamma(some + 1) - math.lgamma(of - some + 1)


def _order(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda place: (values[place], place))
