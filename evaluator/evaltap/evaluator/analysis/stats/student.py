"""The 97.5 % quantile of Student's distribution, for any number of degrees of freedom."""

import math
from collections.abc import Sequence
from typing import Final

Z95: Final = 1.959963984540054
"""The normal quantile of a two-sided 95 % interval."""

_TAIL: Final = 0.025
_MANY: Final = 200.0
"""From this number of degrees, the expansion is exact to 10 digits."""
_EXPANSION: Final[Sequence[float]] = (2.372271230, 2.822498616, 2.555849680, 1.589534053)
"""The coefficients of the quantile in powers of 1/degrees (Abramowitz and Stegun 26.7.5, at z = 1.96)."""


def t95(degrees: float) -> float:
    """Return the quantile; `degrees` is at least 1 and need not be whole."""
    if degrees < 1:
        raise ValueError(f"{degrees} degrees of freedom; expected 1 or more")
    if degrees >= _MANY:
        return Z95 + sum(one / degrees**power for power, one in enumerate(_EXPANSION, start=1))
    low, high = Z95, 12.8
    while high - low > 1e-12:
        middle = (low + high) / 2
        if _upper_tail(middle, degrees) > _TAIL:
            low = middle
        else:
            high = middle
    return (low + high) / 2


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
