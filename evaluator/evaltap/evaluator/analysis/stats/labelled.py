"""Combine a few human labels with many verdicts of a judge.

Labels only have to be a random sample *within* each verdict of the judge: taking half of them from the
failures is a good design, not a bias.  The judge's verdict is the predictor of prediction-powered inference
(Angelopoulos et al., Science 382, 2023), which works best for a judge that returns pass or fail.  Labels of
one session are a cluster.
"""

import math
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from evaltap.evaluator.analysis.stats.estimate import estimate_items
from evaltap.evaluator.analysis.stats.rate import Interval, Rate, wilson_of

Figure: TypeAlias = Callable[[float, float, float], float | None]


@dataclass(frozen=True, slots=True)
class Labels:
    """Labels of the turns with one verdict of the judge, weighted by inverse inclusion probability."""

    count: int = 0
    weight: float = 0.0
    squares: float = 0.0
    """The sum of the squares of the weights."""
    passes: float = 0.0
    """The weight of the turns that people pass."""
    clustered: Rate | None = None
    """The share, if a session has several labels: they resemble each other."""

    @classmethod
    def of(cls, labels: Iterable[tuple[Hashable, float, bool]]) -> "Labels":
        """Return the sums of labels, each given as its session, weight and whether people pass the turn."""
        found = list(labels)
        alone = len({session for session, *_ in found}) == len(found)
        shared = None if alone else estimate_items((s, 1 / w, float(p)) for s, w, p in found)
        return cls(
            len(found),
            sum(weight for _, weight, _ in found),
            sum(weight * weight for _, weight, _ in found),
            sum(weight for _, weight, passes in found if passes),
            shared.rate if shared else None,
        )

    @property
    def trials(self) -> float:
        """The effective number of independent labels of equal weight."""
        return self.clustered.effective_n if self.clustered else self.weight**2 / self.squares

    @property
    def share(self) -> float:
        """The share that people pass; one half without labels, where the interval is 0 to 1."""
        return min(self.passes / self.weight, 1.0) if self.count else 0.5

    @property
    def interval(self) -> Interval:
        """Wilson's interval with the effective number of trials; 0 to 1 without labels."""
        if self.clustered is not None:
            return self.clustered.interval
        return wilson_of(self.share, self.trials) if self.count else Interval(0.0, 1.0)


@dataclass(frozen=True, slots=True)
class Judged:
    """The judge's pass rate q, and the labels of the turns it passed and failed."""

    rate: float
    half_width: float
    """Half the width of the rate's 95 % interval."""
    passed: Labels
    failed: Labels

    def derive(self, function: Figure) -> "tuple[float, Interval] | None":
        """Return a function of q, g1 and g0 (the shares that people pass of each verdict), with its interval.

        By square and add: the distance that each of the three alone may move it at its 95 % ends (Zou and
        Donner 2008).  None if the function is undefined; an end at which it is undefined does not count.
        """
        point = (self.rate, self.passed.share, self.failed.share)
        if (value := function(*point)) is None:
            return None
        around = Interval(self.rate - self.half_width, self.rate + self.half_width)
        below = above = 0.0
        for at, ends in enumerate((around, self.passed.interval, self.failed.interval)):
            points = ([*point[:at], end, *point[at + 1 :]] for end in ends)
            moved = [function(*one) for one in points]
            shifts = [0.0 if one is None else one - value for one in moved]
            below += min(0.0, *shifts) ** 2
            above += max(0.0, *shifts) ** 2
        return value, Interval(value - math.sqrt(below), value + math.sqrt(above))

    def rate_of(self, function: Figure, low: float = 0.0) -> Rate | None:
        """Return what `derive` does; its interval is cut to the possible range of the figure, `low` to 1."""
        if (found := self.derive(function)) is None:
            return None
        value, ends = found
        parts = (self.passed, self.failed)
        effective = sum(one.trials for one in parts if one.count)
        within = Interval(max(low, ends.low), min(1.0, ends.high))
        return Rate(value, within, sum(one.count for one in parts), effective, "labels")


def people(q: float, g1: float, g0: float) -> float:
    """Return the pass rate that people would find."""
    return q * g1 + (1 - q) * g0
