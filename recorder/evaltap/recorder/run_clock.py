"""The time of day as one run sees it: never back, never the same twice."""

import time
from collections.abc import Callable


class RunClock:
    """Nanoseconds since the epoch, strictly growing within a run.

    `wall` is asked once, at the beginning; from there a monotonic clock counts, so that a host whose
    time is set back reorders no observations.
    """

    __slots__ = ("_began_ns", "_last_ns", "_zero_ns")

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self._zero_ns, self._began_ns = time.perf_counter_ns(), wall()
        self._last_ns = 0

    def now(self) -> int:
        """Return the time, at least one nanosecond after the last that was returned."""
        now = self._began_ns + time.perf_counter_ns() - self._zero_ns
        self._last_ns = max(now, self._last_ns + 1)
        return self._last_ns
