"""The outside view of a consumer: probes, notifications to systemd, and reloads on SIGHUP."""

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from evaltap.evaluator.pipeline.live.reloading import Reload
from evaltap.evaluator.pipeline.live.service import serving
from evaltap.evaluator.pipeline.live.status import LiveStatus
from evaltap.evaluator.pipeline.live.systemd import Systemd


class Running:
    """The outside view of a consumer: its status, notifications to systemd, and reloads on SIGHUP."""

    def __init__(self, check: Callable[[], None], say: Callable[[str], None]) -> None:
        self.status = LiveStatus()
        self.reload = Reload(check, say)
        self.stopped = threading.Event()
        """Set by the first signal, so that a stopping consumer is not restarted by a reload."""
        self._systemd = Systemd()

    def beat(self) -> None:
        """Record a step of the consumer; the first step marks it as ready."""
        self.status.beat()
        if not self.status.ready:
            self.status.set_ready(ready=True)
            self._systemd.ready()
        self._systemd.alive()

    def ending(self, stop: Callable[[], None]) -> Callable[[], None]:
        """Return a function that announces the end of the consumer and calls `stop`."""

        def end() -> None:
            self.stopped.set()
            self.status.set_ready(ready=False)
            self._systemd.stopping()
            stop()

        return end

    def again(self) -> bool:
        """Check whether the consumer ended in order to restart with new files."""
        accepted, self.reload.accepted = self.reload.accepted, False
        if accepted:
            self.status.set_ready(ready=False)
            self._systemd.reloading()
        return accepted


@contextmanager
def running(
    serve: tuple[str, int] | None, check: Callable[[], None], say: Callable[[str], None]
) -> Iterator[Running]:
    """Serve probes and handle SIGHUP during the block; closing the terminal still ends the command.

    `check` raises EvaltapError if a reload would fail; `say` tells the user what happens.
    """
    found = Running(check, say)
    before = None
    if hasattr(signal, "SIGHUP") and not sys.stderr.isatty():
        before = signal.signal(signal.SIGHUP, lambda *_: found.reload.request())
    try:
        if serve is None:
            yield found
            return
        with serving(found.status, *serve) as at:
            say(f"{at}/metrics, /healthz, /readyz")
            yield found
    finally:
        if before is not None:
            signal.signal(signal.SIGHUP, before)
