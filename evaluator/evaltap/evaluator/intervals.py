"""Intervals of what was counted or measured, for reports and comparisons."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

_Z95: Final = 1.959963984540054
"""The normal quantile of a two-sided 95 % interval."""


class Interval(NamedTuple):
    """The two ends of an interval, both included."""

    low: float
    high: float


def wilson(successes: int, total: int) -> Interval | None:
    """Return Wilson's 95 % interval of a proportion; None with nothing counted.

    It stays within 0 and 1 and says something for few trials, too, where the normal one does not.
    Raises ValueError unless 0 <= successes <= total.
    """
    if not 0 <= successes <= total:
        raise ValueError(f"{successes} successes of {total}; expected 0 to {total}")
    if not total:
        return None
    share, square = successes / total, _Z95 * _Z95
    centre = share + square / (2 * total)
    spread = _Z95 * math.sqrt(share * (1 - share) / total + square / (4 * total * total))
    scale = 1 + square / total
    # At the ends rounding may put the bound a hair beyond what is possible.
    low = 0.0 if successes == 0 else (centre - spread) / scale
    high = 1.0 if successes == total else (centre + spread) / scale
    return Interval(low, high)


def percentile(values: Sequence[float], share: float) -> float | None:
    """Return a percentile by linear interpolation between neighbours; None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    place = (len(ordered) - 1) * share
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
