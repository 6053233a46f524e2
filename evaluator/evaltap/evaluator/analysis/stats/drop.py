"""The drop of the pass rate between two runs over the same cases: its interval and the detectable drop."""

import math
from collections.abc import Callable, Sequence
from statistics import NormalDist, fmean
from typing import Final, NamedTuple

from evaltap.evaluator.analysis.stats.exchange import Pair, Trials
from evaltap.evaluator.analysis.stats.intervals import Interval, wilson_of

_POWER: Final = 0.8


class Drop(NamedTuple):
    """The mean over cases of base's pass rate minus head's, with its 95 % interval, from -1 to 1."""

    value: float
    interval: Interval


def drop_of(pairs: Sequence[Pair]) -> Drop:
    """Return the drop over a fixed set of cases.

    Each run's rate has a Wilson interval with as many trials as its variance is worth.  A Beta(1/2, 1/2)
    prior accounts for the uncertainty of cases that passed in every trial.  The two intervals are combined by
    square and add (Newcombe 1998, Zou and Donner 2008).
    """
    base, base_interval = mean_rate([pair.base for pair in pairs])
    head, head_interval = mean_rate([pair.head for pair in pairs])
    below = math.hypot(base - base_interval.low, head_interval.high - head)
    above = math.hypot(base_interval.high - base, head - head_interval.low)
    value = base - head
    return Drop(value, Interval(max(-1.0, value - below), min(1.0, value + above)))


def mean_rate(cases: Sequence[Trials]) -> tuple[float, Interval]:
    """Return the mean of the pass rates of a fixed set of cases, with its 95 % interval."""
    rate = fmean(case.rate for case in cases)
    likely = [(case.passes + 0.5) / (case.trials + 1) for case in cases]
    spread = sum(q * (1 - q) / case.trials for q, case in zip(likely, cases, strict=True))
    centre = fmean(likely)
    trials = centre * (1 - centre) * len(cases) ** 2 / spread
    return rate, wilson_of(rate, trials)


def detectable_drop(pairs: Sequence[Pair], level: float) -> float:
    """Return the drop that a test at `level` would find in 80 of 100 comparisons like this one."""
    spread = 0.0
    for (base_passes, base), (head_passes, head) in pairs:
        rate = (base_passes + head_passes + 1) / (base + head + 2)
        spread += rate * (1 - rate) * (1 / base + 1 / head)
    quantile: Callable[[float], float] = NormalDist().inv_cdf
    return (quantile(1 - level) + quantile(_POWER)) * math.sqrt(spread) / len(pairs)
