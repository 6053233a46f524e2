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

SLICE_SECONDS = 0.000_25
REST_SECONDS = 0.000_05
"""Asked for; the system's timers make about twice that of it."""
LONG_REST_SECONDS = 0.05
FIRST_LONG_REST_SECONDS = 0.001
CONTENDED_SECONDS = 0.004
"""Getting the lock back takes this much longer only where another thread computes for all of Python's
switch interval of 5 ms; one that computes for less is never interrupted by us."""


class Pace:
    """Rests now and then.  For one thread.

    `longest` is asked before each rest how many seconds it may take, 0 for no rest; `wait` is how to
    rest for longer than a moment, and may return early.
    """

    def __init__(
        self, longest: Callable[[], float], wait: Callable[[float], object] = time.sleep
    ) -> None:
        self._longest = longest
        self._wait = wait
        self._next_rest = REST_SECONDS
        self._began = time.perf_counter()

    def step(self) -> None:
        """Rest if the slice is used up."""
        now = time.perf_counter()
        if now - self._began < SLICE_SECONDS:
            return
        longest = self._longest()
        if longest > 0:
            self._rest(now, min(self._next_rest, longest))
        self._began = time.perf_counter()

    def _rest(self, began: float, seconds: float) -> None:
        (time.sleep if seconds <= REST_SECONDS else self._wait)(seconds)
        if time.perf_counter() - began - seconds > CONTENDED_SECONDS:
            self._next_rest = max(FIRST_LONG_REST_SECONDS, 2 * seconds)
        else:
            self._next_rest = REST_SECONDS


class _Own(threading.local):
    """The pace of each thread; None where nobody waits for the interpreter lock, as in a command."""

    pace: Pace | None = None


_OWN = _Own()


def keep(pace: Pace | None) -> None:
    """Have this thread keep a pace from now on, or none."""
    _OWN.pace = pace


def breathe() -> None:
    """Rest if this thread keeps a pace and its slice is used up.

    Called from deep inside of reading and redacting, between two spans or two rules: the pace is the
    thread's and not an argument, since nothing on the way there has to know of it.
    """
    pace = _OWN.pace
    if pace is not None:
        pace.step()
