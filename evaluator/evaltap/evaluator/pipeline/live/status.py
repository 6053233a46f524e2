"""The state of a running consumer for other threads and for probes: progress, readiness, figures."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from evaltap.evaluator.pipeline.live.exposition import SinceStart
from evaltap.schemas.errors import InputError

STUCK_SECONDS: Final = 300.0
"""A consumer without a step for this long counts as stuck; a judge's request times out much earlier."""


class LiveStatus:
    """Written by the consumer's thread, read by other threads."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._beaten = clock()
        self._ready = False
        self.since_start = SinceStart()
        self.metrics = ""
        """The metrics published last, in Prometheus's text format."""

    def beat(self) -> None:
        """Note a step of the consumer."""
        self._beaten = self._clock()

    def set_ready(self, *, ready: bool) -> None:
        """Set whether records are being read and landed."""
        self._ready = ready

    @property
    def moves(self) -> bool:
        """Whether the consumer made a step within `STUCK_SECONDS`."""
        return self._clock() - self._beaten < STUCK_SECONDS

    @property
    def ready(self) -> bool:
        """Whether records are being read and landed."""
        return self._ready and self.moves


EVERY_SECONDS: Final = 5.0


def heartbeat(path: Path, clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Return a function that touches the file at most every five seconds.

    Raises InputError if the file cannot be written.
    """
    last = clock()
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise InputError(
            f"--heartbeat {path}: cannot write it ({error.strerror}); name a file in a"
            " writable folder"
        ) from None

    def beat() -> None:
        nonlocal last
        if (now := clock()) - last >= EVERY_SECONDS:
            last = now
            path.touch(mode=0o600)

    return beat
