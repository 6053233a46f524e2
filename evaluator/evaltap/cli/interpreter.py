"""Settings of the Python interpreter for commands that work through many cases."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collecting_rarely() -> Iterator[None]:
    """Have Python look for cycles a hundred times less often.

    Turns are trees, which reference counts free; to look through all that is held for each few hundred
    of their parts takes a third of the time.
    """
    before = gc.get_threshold()
    gc.set_threshold(before[0] * 100, *before[1:])
    gc.freeze()  # modules and metrics stay: nobody need look through them again
    try:
        yield
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)


@contextmanager
def switching_often() -> Iterator[None]:
    """Let other threads have the interpreter after a tenth of a millisecond, not after five.

    The thread that commits needs it some forty times a transaction and for moments, the one that waits for
    judges after each system call; what they wait for each other is lost.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(0.0001)
    try:
        yield
    finally:
        sys.setswitchinterval(before)
