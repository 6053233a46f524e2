"""Stop long-running commands: gracefully at the first signal, immediately at the second."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def stopped_by_signals(command: str, stop: Callable[[], None]) -> Iterator[None]:
    """Call `stop` at the first SIGTERM or SIGINT within the block; a second one ends the process.

    The second signal has its default effect: SIGINT raises KeyboardInterrupt.
    """
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, signal.default_int_handler)
        if number == signal.SIGINT:
            note = (
                f"evaltap {command}: finishing current work, then stopping; interrupt again to stop at"
                " once\n"
            )
            with suppress(OSError):  # not print: the signal may have interrupted another print
                os.write(2, note.encode())
        stop()

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def interrupted_afterwards() -> Iterator[None]:
    """Raise KeyboardInterrupt at the end of the block for a SIGINT within it.

    Compiled modules swallow an exception that is raised while they are imported, or crash.
    """
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield
        return
    came: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: came.append(number))
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if came:
        raise KeyboardInterrupt
