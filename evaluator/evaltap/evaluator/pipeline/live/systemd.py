"""Notify systemd about a service with Type=notify: ready, alive, stopping.  Does nothing elsewhere."""

import os
import socket
import time
from collections.abc import Callable, Mapping
from typing import Final

_AT_MOST: Final = 0.5
"""Share of the watchdog's interval: systemd recommends two notifications within it."""


class Systemd:
    """Sends notifications to the socket that systemd names.  Without a socket, every method does nothing."""

    def __init__(
        self,
        environ: Mapping[str, str] = os.environ,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
        self._clock = clock
        microseconds = environ.get("WATCHDOG_USEC", "")
        mine = environ.get("WATCHDOG_PID", str(os.getpid())) == str(os.getpid())
        self._every = int(microseconds) / 1e6 * _AT_MOST if microseconds.isdigit() and mine else 0.0
        self._last = -self._every

    def ready(self) -> None:
        """Notify that records are being read; also ends a reload."""
        self._send("READY=1")

    def reloading(self) -> None:
        """Notify that files are being reloaded; `ready` ends the reload."""
        self._send(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")

    def stopping(self) -> None:
        """Notify that the service is stopping."""
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Notify the watchdog, if a notification is due."""
        if self._every and (now := self._clock()) - self._last >= self._every:
            self._last = now
            self._send("WATCHDOG=1")

    def _send(self, state: str) -> None:
        if not self._address:
            return
        address = "\0" + self._address[1:] if self._address[0] == "@" else self._address
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
            try:
                sender.sendto(state.encode(), address)
            except OSError:  # nobody listens any more, which must not stop the service
                return
