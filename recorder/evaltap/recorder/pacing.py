"""Give way to the agent: background work in slices shorter than what anybody notices.

A Python thread that works keeps the interpreter lock for up to 5 ms (the switch interval) while the
agent's thread waits for it.  So the recorder's thread lets go of the lock by itself after each
slice, for long enough that a waiting thread takes it.  When it had to wait to get the lock back, the
agent is computing, and each slice costs it one: then work that is not urgent rests for longer each
time, so that slices are few.  It rests less or not at all when somebody waits for it (flush, close)
or when what waits for it would be lost.
"""

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """How long to work, and to rest; the values are those at which the benchmarks gave the figures below.

    Turns back to back cost the agent's thread 0.7 times what a batch processor adds, and the slowest in
    a hundred 0.37 times; a turn is on the log some 20 ms after its end, and a burst within a second
    (docs/benchmarks/recorder_overhead.py and live_latency.py).
    """

    slice_seconds: float = 0.000_25
    """Work between two rests: a twentieth of what Python would take."""
    rest_seconds: float = 0.000_05
    """Asked for; the system's timers make about twice that of it."""
    first_long_rest_seconds: float = 0.001
    long_rest_seconds: float = 0.05
    """The longest of the rests that grow while the agent computes."""
    contended_seconds: float = 0.004
    """Getting the lock back takes this much longer only where another thread computes for all of Python's
    switch interval of 5 ms; one that computes for less is never interrupted by us."""
    turn_wait_seconds: float = 0.02
    """How long a turn that has ended may wait in favour of the agent's thread."""
    span_wait_seconds: float = 0.08
    """When a turn read from spans is too late to be hurried: a large trace is read at ease from then on."""
    burst_messages: int = 100
    """More raw items than this waiting, some ten turns at once, come faster than they could be written."""
    burst_wait_seconds: float = 1.0
    """How long such a burst may wait in favour of the agent's thread."""


DEFAULT_PACE = Pace()


class Pacer:
    """Rests now and then.  For one thread.

    `longest` is asked before each rest how many seconds it may take, 0 for no rest; `wait` is how to
    rest for longer than a moment, and may return early.
    """

    def __init__(
        self,
        longest: Callable[[], float],
        wait: Callable[[float], object] = time.sleep,
        limits: Pace = DEFAULT_PACE,
    ) -> None:
        self._longest = longest
        self._wait = wait
        self._limits = limits
        self._next_rest = limits.rest_seconds
        self._began = time.perf_counter()

    def step(self) -> None:
        """Rest if the slice is used up."""
        now = time.perf_counter()
        if now - self._began < self._limits.slice_seconds:
            return
        longest = self._longest()
        if longest > 0:
            self._rest(now, min(self._next_rest, longest))
        self._began = time.perf_counter()

    def _rest(self, began: float, seconds: float) -> None:
        limits = self._limits
        (time.sleep if seconds <= limits.rest_seconds else self._wait)(seconds)
        if time.perf_counter() - began - seconds > limits.contended_seconds:
            self._next_rest = max(limits.first_long_rest_seconds, 2 * seconds)
        else:
            self._next_rest = limits.rest_seconds


class _Own(threading.local):
    """The pace of each thread; None where nobody waits for the interpreter lock, as in a command."""

    pace: Pacer | None = None


_OWN = _Own()


def set_pace(pace: Pacer | None) -> None:
    """Have this thread keep a pace from now on, or none."""
    _OWN.pace = pace


def yield_to_agent() -> None:
    """Rest if this thread keeps a pace and its slice is used up.

    Called from deep inside of reading and redacting, between two spans or two rules: the pace is the
    thread's and not an argument, since nothing on the way there has to know of it.
    """
    pace = _OWN.pace
    if pace is not None:
        pace.step()
