"""P-values of several tests at once, and of two shares."""

import math
from collections.abc import Sequence


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
    both, total = first + second, of_first + of_second
    every = math.comb(total, both)

    def chance(one: int) -> float:
        return math.comb(of_first, one) * math.comb(of_second, both - one) / every

    seen = chance(first) * (1 + 1e-7)
    values = range(max(0, both - of_second), min(of_first, both) + 1)
    return min(1.0, sum(found for one in values if (found := chance(one)) <= seen))


def _order(values: Sequence[float]) -> list[int]:
    return sorted(range(len(values)), key=lambda place: (values[place], place))
