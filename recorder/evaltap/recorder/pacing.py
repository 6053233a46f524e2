"""Yield to the agent: background work in slices too short to notice.

A working Python thread holds the GIL for up to 5 ms (the switch interval) while the agent's thread
waits for it. So the recorder's thread releases the GIL after each slice, for long enough that a
waiting thread takes it. If it then had to wait to get the GIL back, the agent is computing, and
each slice costs it a switch interval: non-urgent work then sleeps for longer each time, so that
slices are rare. It sleeps less or not at all when someone waits for it (flush, close) or when
events would be dropped.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from evaltap.recorder.threads import sleep


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to work and to sleep; with these values the benchmarks gave the figures below.

    Back-to-back turns cost the agent's thread 0.7 times what a batch processor adds, and 0.37 times
    at the 99th percentile; a turn is on the log about 20 ms after its end, and a burst within a
    second (docs/benchmarks/recorder_overhead.py and live_latency.py).
    """

    slice_seconds: float = 0.000_25
    """Work between two sleeps: a twentieth of Python's switch interval."""
    rest_seconds: float = 0.000_05
    """As requested; the system's timers make it about twice as long."""
    first_long_rest_seconds: float = 0.001
    long_rest_seconds: float = 0.05
    """The longest of the sleeps, which grow while the agent computes."""
    contended_seconds: float = 0.004
    """Getting the GIL back takes this much longer only if another thread computes for all of
    Python's 5 ms switch interval; one that computes for less is never interrupted by us."""
    turn_wait_seconds: float = 0.02
    """How long a finished turn may wait in favor of the agent's thread."""
    span_wait_seconds: float = 0.08
    """When a turn read from spans is too late to be expedited: beyond it a large trace is read at
    leisure."""
    burst_messages: int = 100
    """More raw items than this, about ten turns at once, arrive faster than they can be written."""
    burst_wait_seconds: float = 1.0
    """How long such a burst may wait in favor of the agent's thread."""


DEFAULT_PACE = Pace()


class Pacer:
    """Sleeps between slices, for one thread.

    `longest` is called before each sleep and returns its maximum in seconds, 0 for none; `wait`
    performs the longer sleeps, and may return early.
    """

    def __init__(
        self,
        longest: Callable[[], float],
        wait: Callable[[float], object] = sleep,
        limits: Pace = DEFAULT_PACE,
    ) -> None:
        self._longest = longest
        self._wait = wait
        self._limits = limits
        self._next_rest = limits.rest_seconds
        self._began = time.perf_counter()

    def step(self) -> None:
        """Sleep if the slice is used up."""
        now = time.perf_counter()
        if now - self._began < self._limits.slice_seconds:
            return
        longest = self._longest()
        if longest > 0:
            self._rest(now, min(self._next_rest, longest))
        self._began = time.perf_counter()

    def _rest(self, began: float, seconds: float) -> None:
        limits = self._limits
        (sleep if seconds <= limits.rest_seconds else self._wait)(seconds)
        if time.perf_counter() - began - seconds > limits.contended_seconds:
            self._next_rest = max(limits.first_long_rest_seconds, 2 * seconds)
        else:
            self._next_rest = limits.rest_seconds


class _Own(threading.local):
    """The pacer of each thread; None where no one waits for the GIL, as in a command."""

    pace: Pacer | None = None


_OWN = _Own()


def set_pace(pace: Pacer | None) -> None:
    """Set or clear this thread's pacer."""
    _OWN.pace = pace


def yield_to_agent() -> None:
    """Sleep if this thread has a pacer and its slice is used up.

    Called from deep inside reading and redacting, between two spans or two rules. The pacer is
    thread-local and not an argument, so that the callers in between need not know of it.
    """
    if (pace := _OWN.pace) is not None:
        pace.step()
