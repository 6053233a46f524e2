"""The clock of a run, which never goes backwards."""

import time
from collections.abc import Callable


class RunClock:
    """Nanoseconds since the epoch, strictly increasing within a run.

    It reads `wall` once, at the start, and a monotonic clock from then on, so that setting the
    host's clock back does not reorder observations.
    """

    __slots__ = ("_began_ns", "_last_ns", "_zero_ns")

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self._zero_ns, self._began_ns = time.perf_counter_ns(), wall()
        self._last_ns = 0

    def now(self) -> int:
        """Return the time, at least one nanosecond after the last value returned."""
        now = self._began_ns + time.perf_counter_ns() - self._zero_ns
        self._last_ns = max(now, self._last_ns + 1)
        return self._last_ns
