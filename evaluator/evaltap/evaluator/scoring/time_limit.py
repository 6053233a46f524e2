"""A limit on the time that one case may take under one metric.

A thread checks the cases in progress several times per second.  A case that takes too long is interrupted
by an exception in its thread, which stops Python code at its next step.  Code that never returns to Python
(a library that holds the interpreter lock) cannot be interrupted: `exit_when_stuck` then ends the process
from a thread that does not need the interpreter, and the crash guard finds the case at the next start.
"""

import ctypes
import faulthandler
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from threading import get_ident
from time import monotonic
from typing import Final

from msgspec import Struct

DEFAULT_SECONDS: Final = 60.0
STUCK: Final = 2.0
"""The multiple of the limit after which the process ends."""
LEAST_PATIENCE = 30.0
"""The process ends after at least this many seconds: a busy machine may delay a thread."""
_LOOKS: Final = 4
"""Checks within a limit, so a case gets at most a quarter more time."""


class TookTooLongError(BaseException):
    """Raised in a thread whose case takes too long; no `except Exception` of an evaluator stops it."""


class Work(Struct, eq=False):
    """A thread's task with a time limit."""

    seconds: float
    around: "Work | None"
    thread: int
    since: float
    interrupted: bool = False


class Watch:
    """Watches the threads of this process.  All scorers share one watch."""

    def __init__(self) -> None:
        self._under_way: dict[int, Work] = {}
        self._lock = threading.Lock()
        self._shortest = DEFAULT_SECONDS
        self._shorter = threading.Event()
        self._exits = False
        self._watcher: threading.Thread | None = None

    @contextmanager
    def exit_when_stuck(self) -> Iterator[None]:
        """End this process, with a traceback on stderr, if a case in the block cannot be interrupted.

        A process that was suspended (SIGSTOP) may end as well, so this is for services.
        """
        self._exits = True
        try:
            yield
        finally:
            with self._lock:
                self._exits = False
                faulthandler.cancel_dump_traceback_later()

    def begin(self, seconds: float) -> Work:
        """Start a task in this thread; after `seconds`, TookTooLongError is raised in the thread."""
        thread, under_way = get_ident(), self._under_way
        work = under_way[thread] = Work(seconds, under_way.get(thread), thread, monotonic())
        if seconds < self._shortest:
            self._shortest = seconds
            self._shorter.set()
        if self._watcher is None:
            self._start()
        return work

    def end(self, work: Work) -> None:
        """End a task; nothing is raised afterwards.  May be called twice."""
        if work.around is None:
            self._under_way.pop(work.thread, None)
        else:
            self._under_way[work.thread] = work.around
        # `_look` marks the task first and then looks whether it is still under way.
        if work.interrupted:
            with self._lock:
                _take_back(work.thread)

    def _start(self) -> None:
        with self._lock:
            if self._watcher is None:
                self._watcher = threading.Thread(
                    target=self._look, name="evaltap-time-limit", daemon=True
                )
                self._watcher.start()
                self._put_off()

    def _look(self) -> None:
        while True:
            self._shorter.wait(min(1.0, self._shortest / _LOOKS))
            # The order matters: a task that starts from here on is in the list below or sets the event again.
            self._shorter.clear()
            self._shortest = DEFAULT_SECONDS
            now, stuck = monotonic(), False
            with self._lock:
                works = self._works()
                self._shortest = min((work.seconds for work in works), default=DEFAULT_SECONDS)
                for work in works:
                    taken = now - work.since
                    if taken > work.seconds and not work.interrupted:
                        work.interrupted = True
                        if self._under_way.get(work.thread) is work:
                            _raise_in(work.thread, TookTooLongError)
                    stuck = stuck or taken > work.seconds * STUCK
                if not stuck:
                    self._put_off()

    def _works(self) -> list[Work]:
        """Return a copy of the current tasks, as `begin` adds to them without the lock."""
        return list(self._under_way.copy().values())

    def _put_off(self) -> None:
        """Postpone the end of the process: this thread runs, so no case holds the interpreter lock."""
        if self._exits and sys.__stderr__ is not None:
            limits = [work.seconds for work in self._works()]
            seconds = max(max(limits, default=DEFAULT_SECONDS) * STUCK, LEAST_PATIENCE)
            with suppress(ValueError, OSError):  # stderr may be no file
                faulthandler.dump_traceback_later(seconds, exit=True, file=sys.__stderr__)


def _raise_in(thread: int, kind: type[BaseException] | None) -> None:
    found = ctypes.py_object(kind) if kind is not None else None
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), found)


def _take_back(thread: int) -> None:
    """Cancel an exception that is pending in a thread."""
    _raise_in(thread, None)
    # Up to CPython 3.12, that call makes the whole interpreter check for exceptions until one is raised.
    # Under 3.11, a profiler that starts meanwhile never returns.
    with suppress(TookTooLongError):
        _raise_in(get_ident(), TookTooLongError)
        while True:
            pass


WATCH: Final = Watch()


def _forget() -> None:
    """Start anew in a forked child, which does not have the watching thread."""
    WATCH.__init__()  # type: ignore[misc]  # the one object that scorers know


if hasattr(os, "register_at_fork"):  # Windows has no forks
    os.register_at_fork(after_in_child=_forget)
