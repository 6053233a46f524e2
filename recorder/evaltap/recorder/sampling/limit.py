"""A limit on how many turns a minute are kept: by a share that is part of their probability."""

import math
from collections.abc import Callable
from typing import Final

LIMITED: Final = "rate_limited"
"""Left out by the draw with the share: others stand for it."""
BURST: Final = "rate_limited:burst"
"""Refused whatever the draw was, since a minute's worth has just passed: nothing stands for it."""
_RATE_SECONDS: Final = 30.0
"""Over how long the rate of turns is averaged."""
_LOW: Final = 0.25
"""Below this part of a minute's worth the share is lowered, down to a half."""


class RateLimit:
    """Thins out by the share that fits the limit, and never lets more than a minute's worth pass at once."""

    def __init__(self, per_second: float, clock: Callable[[], float]) -> None:
        self._per_second = per_second
        self._clock = clock
        self._last = clock()
        self._rate = 0.0
        self._capacity = max(1.0, per_second * 60)
        self._tokens = self._capacity

    def share(self, arrivals: int = 1) -> float:
        """Note arrivals; return the share of them that fits the limit.  It depends on no draw of theirs."""
        now = self._clock()
        passed, self._last = max(0.0, now - self._last), now
        self._tokens = min(self._capacity, self._tokens + passed * self._per_second)
        # An average that forgets: each arrival adds its part of a rate, time takes it away.
        self._rate = self._rate * math.exp(-passed / _RATE_SECONDS) + arrivals / _RATE_SECONDS
        fits = min(1.0, self._per_second / self._rate)
        # What chance takes away of the bucket must come back, or a steady flow would empty it.
        left = self._tokens / (self._capacity * _LOW)
        return fits * min(1.0, max(0.5, left))

    def refuses(self, draw: float, share: float, arrivals: int = 1) -> str:
        """Return why arrivals with this draw may not pass, empty when they may."""
        if self._tokens < 1:
            return BURST
        if draw >= share:
            return LIMITED
        self.take(arrivals)
        return ""

    def take(self, arrivals: int) -> None:
        """Count arrivals that pass."""
        self._tokens = max(0.0, self._tokens - arrivals)
