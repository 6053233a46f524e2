"""A few human labels next to many verdicts of a judge.

Labels only have to be a random choice *within* each verdict of the judge: half of them from what the judge
fails is a good design, not a bias.  The judge's verdict is the predictor of prediction-powered inference
(Angelopoulos et al., Science 382, 2023), at its best for a judge that says pass or fail.
"""

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from evaltap.evaluator.stats.intervals import Interval, wilson_of


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of what a judge gave one verdict, weighted by one over their inclusion probability."""

    count: int = 0
    weight: float = 0.0
    squares: float = 0.0
    """The sum of the squares of the weights."""
    passes: float = 0.0
    """The weight of those that people pass."""

    @classmethod
    def of(cls, labels: Iterable[tuple[float, bool]]) -> "Labels":
        """Sum labels given as weight and whether people pass it."""
        found = list(labels)
        return cls(
            len(found),
            sum(weight for weight, _ in found),
            sum(weight * weight for weight, _ in found),
            sum(weight for weight, passes in found if passes),
        )

    @property
    def share(self) -> float:
        """The share that people pass; without labels a half, which the interval takes back."""
        return min(self.passes / self.weight, 1.0) if self.count else 0.5

    @property
    def interval(self) -> Interval:
        """Wilson's, with as many trials as equal weights would need; 0 to 1 without labels."""
        if not self.count:
            return Interval(0.0, 1.0)
        return wilson_of(self.share, self.weight**2 / self.squares)


@dataclass(frozen=True, slots=True)
class Judged:
    """The judge's pass rate q, and the labels of what it passed and of what it failed."""

    rate: float
    half_width: float
    """Of the rate's 95 % interval."""
    passed: Labels
    failed: Labels

    def derive(self, function: Callable[[float, float, float], float | None]) -> "Derived | None":
        """Return a function of q, g1 and g0, the shares that people pass of either, with its interval.

        Square and add: how far each of the three alone may move it, at its 95 % ends (Zou and Donner 2008).
        None where the function is undefined; an end at which it is undefined moves nothing.
        """
        point = (self.rate, self.passed.share, self.failed.share)
        value = function(*point)
        if value is None:
            return None
        around = Interval(self.rate - self.half_width, self.rate + self.half_width)
        below = above = 0.0
        for at, ends in enumerate((around, self.passed.interval, self.failed.interval)):
            moved = [function(*_with(point, at, end)) for end in ends]
            shifts = [0.0 if one is None else one - value for one in moved]
            below += min(0.0, *shifts) ** 2
            above += max(0.0, *shifts) ** 2
        return Derived(value, Interval(value - math.sqrt(below), value + math.sqrt(above)))


@dataclass(frozen=True, slots=True)
class Derived:
    """A figure with its 95 % interval, which may reach beyond what the figure can be."""

    value: float
    interval: Interval

    def within(self, low: float, high: float) -> Interval:
        """Return the interval cut to what the figure can be."""
        return Interval(max(low, self.interval.low), min(high, self.interval.high))


def people_rate(judged: Judged) -> Derived:
    """Return the pass rate that people would find: q·g1 + (1-q)·g0, cut to 0 to 1."""
    found = judged.derive(lambda q, g1, g0: q * g1 + (1 - q) * g0)
    assert found is not None  # it is defined everywhere
    return Derived(found.value, found.within(0.0, 1.0))


def _with(point: Sequence[float], at: int, value: float) -> tuple[float, float, float]:
    q, passed, failed = (value if place == at else one for place, one in enumerate(point))
    return q, passed, failed
