"""Settings of the Python interpreter for processes that read or score many turns."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Run the cyclic garbage collector a hundred times less often.

    Turns are trees, which reference counting frees. Scanning all live objects after every few hundred
    allocations takes a third of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(before[0] * 100, *before[1:])
    gc.freeze()  # modules and metrics live until the end: there is no need to scan them
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@contextmanager
def never_collecting() -> Iterator[None]:
    """Import without the cyclic garbage collector: imports make many objects and hardly any garbage."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


@contextmanager
def switching_often() -> Iterator[None]:
    """Switch threads after 0.1 ms instead of Python's default of 5 ms.

    The committing thread needs the interpreter briefly, about forty times per transaction. The thread that
    waits for judges needs it after each system call. Time spent waiting for each other is lost.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
