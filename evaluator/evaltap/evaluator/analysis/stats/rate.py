"""`Rate`: a share or mean with its interval; no other class holds these together."""

from dataclasses import dataclass
from typing import Literal, TypeAlias

from evaltap.evaluator.analysis.stats.intervals import Interval, wilson, wilson_of

Unit: TypeAlias = Literal[
    "turns", "sessions", "cases", "trials", "calls", "labels", "attempts", "tool uses"
]


@dataclass(frozen=True, slots=True)
class Rate:
    """A share or mean with its 95 % interval, and what it is of.

    Built by `of_counts`, `of_weights`, and for weighted turns in clusters by `estimate`.
    """

    value: float
    interval: Interval
    n: int
    """The number of observed units."""
    effective_n: float
    """The number of independent units of equal weight with the same information."""
    unit: Unit
    weighted: bool = False
    """Whether it is of all traffic, and the units are a sample with unequal weights."""

    @classmethod
    def of_counts(cls, having: int, n: int, unit: Unit) -> "Rate | None":
        """Return the share of independent units, with Wilson's interval; None without units."""
        interval = wilson(having, n)
        return None if interval is None else cls(having / n, interval, n, n, unit)

    @classmethod
    def of_weights(
        cls,
        having: float,
        weight: float,
        squares: float,
        n: int,
        unit: Unit,
        *,
        effect: float = 1.0,
    ) -> "Rate | None":
        """Return a weighted share, given the sums of weights and of their squares; None without units.

        The effective number is Kish's for the weights, divided by the design effect of clusters.
        """
        if not weight:
            return None
        independent = weight * weight / squares
        effective = max(independent / effect, min(independent, 1.0))
        value = min(1.0, having / weight)
        return cls(value, wilson_of(value, effective), n, effective, unit, weight > n * 1.001)
