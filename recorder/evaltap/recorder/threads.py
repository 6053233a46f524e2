"""Threads, and what the recorder's threads meet on, of one kind: bound when this module is imported.

gevent and eventlet replace the interpreter's threads, locks and sleep by their own, before or after this
import.  Looked up later, a "thread" would be a greenlet that waits on a lock of the operating system, and
the whole process with it.  Patched before, all of this is cooperative; patched after, none is: a real
thread beside the greenlets.
"""

import time
from _thread import allocate_lock, get_ident, start_new_thread
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue
from time import sleep

__all__ = [
    "BackgroundThread",
    "Empty",
    "Signal",
    "SimpleQueue",
    "allocate_lock",
    "sleep",
    "wait_until",
]

_SHORTEST_WAIT, _LONGEST_WAIT = 0.000_5, 0.01


class Signal:
    """A flag on which one thread waits; any thread sets it, also from a signal handler."""

    def __init__(self) -> None:
        self._is_set = False
        self._token = allocate_lock()
        self._token.acquire()

    def is_set(self) -> bool:
        """Return whether it is set."""
        return self._is_set

    def set(self) -> None:
        """Set it and wake the waiting thread."""
        self._is_set = True
        with suppress(RuntimeError):  # set before
            self._token.release()

    def clear(self) -> None:
        """Reset it; for the waiting thread."""
        self._is_set = False
        self._token.acquire(False)

    def wait(self, timeout_seconds: float) -> bool:
        """Wait until it is set; return whether it is. It may return early."""
        if not self._is_set:
            self._token.acquire(True, max(0.0, timeout_seconds))
        return self._is_set


def wait_until(is_so: Callable[[], bool], deadline: Callable[[], float]) -> bool:
    """Wait until something is so; return False after the deadline, which may move.

    For the agent's threads, which may be greenlets: `time.sleep` as it is now lets the others run.
    """
    pause = _SHORTEST_WAIT
    while not is_so():
        left = deadline() - time.monotonic()
        if left <= 0:
            return False
        time.sleep(min(pause, left))
        pause = min(2 * pause, _LONGEST_WAIT)
    return True


class BackgroundThread:
    """Runs `target` on a daemon thread; `start` returns at once.

    `threading.Thread.start` waits until the new thread runs.  In a process with four busy threads, that kept
    the agent waiting for 40 to 90 ms at its first event.
    """

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        self._ident: int | None = None
        self.ended = False

    def start(self) -> None:
        """Start the thread; raises RuntimeError if the process cannot have another one."""
        start_new_thread(self._run, ())

    def join(self, timeout_seconds: float) -> bool:
        """Wait for the end of the thread; return whether it has ended."""
        deadline = time.monotonic() + timeout_seconds
        return wait_until(lambda: self.ended, lambda: deadline)

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return self._ident == get_ident()

    def _run(self) -> None:
        self._ident = get_ident()
        try:
            self._target()
        finally:
            self.ended = True
