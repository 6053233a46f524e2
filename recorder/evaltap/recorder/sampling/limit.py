"""A rate limit on kept turns per minute, applied as a share that enters their probability."""

import math
from collections.abc import Callable
from typing import Final

LIMITED: Final = "rate_limited"
"""Dropped by the draw against the share: kept turns are weighted to represent it."""
BURST: Final = "rate_limited:burst"
"""Dropped whatever the draw, because the last minute's quota is used up: not represented by weights."""
_RATE_SECONDS: Final = 30.0
"""Window for the average rate of turns."""
_LOW: Final = 0.25
"""Below this part of a minute's quota the share is lowered, down to a half."""


class RateLimit:
    """Samples by the share that fits the limit, and never passes more than a minute's quota at once."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._last = clock()
        self._rate = 0.0
        self._capacity = max(1.0, per_second * 60)
        self._tokens = self._capacity

    def share(self, arrivals: int = 1) -> float:
        """Count arrivals and return the share of them that fits the limit, independent of their draws."""
        now = self._clock()
        passed, self._last = max(0.0, now - self._last), now
        self._tokens = min(self._capacity, self._tokens + passed * self._per_second)
        # An exponentially decaying average of the rate.
        self._rate = self._rate * math.exp(-passed / _RATE_SECONDS) + arrivals / _RATE_SECONDS
        fits = min(1.0, self._per_second / self._rate)
        # Random fluctuations drain the bucket; it must refill, or a steady flow would empty it.
        left = self._tokens / (self._capacity * _LOW)
        return fits * min(1.0, max(0.5, left))

    def refuses(self, draw: float, share: float, arrivals: int = 1) -> str:
        """Return why arrivals with this draw are refused, empty if they pass."""
        if self._tokens < 1:
            return BURST
        if draw >= share:
            return LIMITED
        self.take(arrivals)
        return ""

    def take(self, arrivals: int) -> None:
        """Count arrivals that pass."""
        self._tokens = max(0.0, self._tokens - arrivals)
