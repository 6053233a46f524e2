"""Stopping long-running commands: in order at the first signal, at once at the second."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


@contextmanager
def stopped_by_signals(command: str, stop: Callable[[], None]) -> Iterator[None]:
    """Have the first SIGTERM or SIGINT within the block call `stop`; a second one ends the process.

    That is what a process does that nobody asked to be patient: SIGINT raises KeyboardInterrupt.
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
            with suppress(OSError):  # a print could meet one that the signal interrupted
                os.write(2, note.encode())
        stop()

    for number in before:
        signal.signal(number, first)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
