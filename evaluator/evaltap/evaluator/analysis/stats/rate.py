"""`Rate`: a share or mean with its interval; no other class holds these together."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple, TypeAlias

Z95: Final = 1.959963984540054
"""The normal quantile of a two-sided 95 % interval."""


class Interval(NamedTuple):
    """The two ends of an interval, both included."""

    low: float
    high: float

    def __format__(self, spec: str) -> str:
        return f"{self.low:{spec}} to {self.high:{spec}}"


Unit: TypeAlias = Literal["turns", "sessions", "cases", "trials", "labels", "items", "attempts"]


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
        """Return the share of independent units, with Wilson's interval; None without units.

        The interval stays within 0 and 1 and, unlike the normal one, is meaningful for few units.  Raises
        ValueError unless 0 <= having <= n.
        """
        if not 0 <= having <= n:
            raise ValueError(f"{having} of {n} {unit}; expected 0 to {n}")
        return cls(having / n, wilson_of(having / n, n), n, n, unit) if n else None

    @classmethod
    def of_weights(
        cls, having: float, weight: float, squares: float, n: int, unit: Unit
    ) -> "Rate | None":
        """Return a weighted share of independent units, given the sums of weights and of their squares.

        None without units.  The effective number is Kish's.
        """
        if not weight:
            return None
        value, effective = min(1.0, having / weight), weight * weight / squares
        return cls(value, wilson_of(value, effective), n, effective, unit, weight > n * 1.001)


def wilson_of(share: float, trials: float, z: float = Z95) -> Interval:
    """Return Wilson's interval, 95 % unless z is given; `trials` need not be whole."""
    square = z * z
    centre = share + square / (2 * trials)
    spread = z * math.sqrt(share * (1 - share) / trials + square / (4 * trials * trials))
    scale = 1 + square / trials
    # At the ends, rounding may put the bound slightly outside 0 to 1.
    low = 0.0 if share <= 0 else max(0.0, (centre - spread) / scale)
    high = 1.0 if share >= 1 else min(1.0, (centre + spread) / scale)
    return Interval(low, high)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return a percentile by linear interpolation between neighbours; None without values."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def pass_at_k(n: int, c: int, k: int) -> float:
    """Return 1 - C(n-c, k) / C(n, k), the unbiased estimate; raise ValueError unless 1 <= k <= n.

    >>> round(pass_at_k(n=5, c=3, k=2), 2)  # 3 of 5 runs passed; chance that of 2 tries some pass
    0.9
    """
    _check(n, c, k)
    if k > n:
        raise ValueError(f"k is {k} with {n} runs; expected at most as many tries as runs")
    return 1.0 - math.comb(n - c, k) / math.comb(n, k)


def pass_hat_k(n: int, c: int, k: int) -> float:
    """Return (c/n)^k, the estimate of tRPC-Agent-Go; raise ValueError for n or k below 1.

    >>> round(pass_hat_k(n=5, c=3, k=2), 2)  # 3 of 5 runs passed; chance that of 2 tries both pass
    0.36
    """
    _check(n, c, k)
    if n < 1:
        raise ValueError(f"n is {n}; expected at least one run")
    return (c / n) ** k


def pass_hat_k_unbiased(n: int, c: int, k: int) -> float:
    """Return C(c, k) / C(n, k); NaN if there are fewer runs than tries.

    >>> round(pass_hat_k_unbiased(n=5, c=3, k=2), 2)  # 3 of 5 runs passed; chance that of 2 tries both pass
    0.3
    """
    _check(n, c, k)
    return math.comb(c, k) / math.comb(n, k) if k <= n else math.nan


def _check(n: int, c: int, k: int) -> None:
    if n < 0 or not 0 <= c <= n:
        raise ValueError(f"c is {c} of n = {n} runs; expected 0 <= c <= n")
    if k < 1:
        raise ValueError(f"k is {k}; expected 1 or more")


_TAIL: Final = 0.025
_MANY: Final = 200.0
"""From this number of degrees, the expansion is exact to 10 digits."""
_EXPANSION: Final[Sequence[float]] = (2.372271230, 2.822498616, 2.555849680, 1.589534053)
"""The coefficients of the quantile in powers of 1/degrees (Abramowitz and Stegun 26.7.5, at z = 1.96)."""


def t95(degrees: float) -> float:
    """Return the quantile; `degrees` is at least 1 and need not be whole."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; expected 1 or more")
    t = Z95 + sum(one / degrees**power for power, one in enumerate(_EXPANSION, start=1))
    step = 0.0 if degrees >= _MANY else 1.0
    while abs(step) > 1e-12 * t:  # Newton's method, which cannot fail: the tail is convex
        step = (_upper_tail(t, degrees) - _TAIL) / _density(t, degrees)
        t += step
    return t


def _density(t: float, degrees: float) -> float:
    log = math.lgamma((degrees + 1) / 2) - math.lgamma(degrees / 2)
    log -= (degrees + 1) / 2 * math.log1p(t * t / degrees)
    return math.exp(log) / math.sqrt(degrees * math.pi)


def _upper_tail(t: float, degrees: float) -> float:
    """Return P(T > t) for t > 0: half the incomplete beta function at v/(v + t^2)."""
    return _incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t)) / 2


def _incomplete_beta(a: float, b: float, x: float) -> float:
    if x > (a + 1) / (a + b + 2):  # where the fraction of the other tail converges faster
        return 1 - _incomplete_beta(b, a, 1 - x)
    front = math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    front += a * math.log(x) + b * math.log1p(-x)
    return math.exp(front) * _fraction(a, b, x) / a


def _fraction(a: float, b: float, x: float) -> float:
    """Return the continued fraction of the incomplete beta function (Lentz's method, DLMF 8.17.22)."""
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    value = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / (1 + term * d)
            c = 1 + term / c
            value *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return value
