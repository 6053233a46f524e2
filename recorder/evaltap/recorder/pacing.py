"""Give way to the agent: background work in slices shorter than what anybody notices.

A Python thread that works keeps the interpreter lock for up to 5 ms (the switch interval) while the
agent's thread waits for it.  So the recorder's thread lets go of the lock by itself after each
slice, for long enough that a waiting thread takes it.  It stops being polite when somebody waits
for it (flush, close) or when what waits for it would be lost.
"""

import threading
import time
from collections.abc import Callable

SLICE_SECONDS = 0.000_25
REST_SECONDS = 0.000_05
"""Asked for; the system's timers make about twice that of it."""


class Pace:
    """Rests now and then; `pressed` tells when there is no time for it.  For one thread."""

    def __init__(self, pressed: Callable[[], bool]) -> None:
        self._pressed = pressed
        self._began = time.perf_counter()

    def step(self) -> None:
        """Rest if the slice is used up."""
        if time.perf_counter() - self._began < SLICE_SECONDS:
            return
        if not self._pressed():
            time.sleep(REST_SECONDS)
        self._began = time.perf_counter()


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
