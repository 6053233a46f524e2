"""The outside view of a consumer: probes and metrics over HTTP, notifications to systemd, reloads."""

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.pipeline.live.consumer import ConsumerTask
from evaltap.evaluator.pipeline.live.exposition import CONTENT_TYPE, OPEN_METRICS, open_metrics
from evaltap.evaluator.pipeline.live.status import LiveStatus
from evaltap.schemas.errors import EvaltapError, InputError


class Running:
    """The outside view of a consumer: its status, notifications to systemd, and reloads on SIGHUP."""

    def __init__(self, check: Callable[[], None], say: Callable[[str], None]) -> None:
        self.status = LiveStatus()
        self.reload = Reload(check, say)
        self.stopped = threading.Event()
        """Set by the first signal, so that a stopping consumer is not restarted by a reload."""
        self._systemd = Systemd()

    def beat(self, *, away: bool = False) -> None:
        """Record a step of the consumer, which is ready unless it is ending or its log is `away`."""
        self.status.beat()
        if away:
            self.status.set_ready(ready=False)
        elif not self.status.ready and not self.stopped.is_set():
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


def _nothing() -> None:
    pass


class Reload(ConsumerTask):
    """Stops the consumer so that it restarts with the changed files; if they are invalid, it keeps running.

    `check` raises EvaltapError for invalid files.  `request` may be called from a signal handler.
    """

    def __init__(self, check: Callable[[], None], report: Callable[[str], None]) -> None:
        self.stop: Callable[[], None] = _nothing
        """Stops the consumer; set by the consumer's creator."""
        self.accepted = False
        self._check = check
        self._report = report
        self._requested = False

    def request(self) -> None:
        """Request a reload at the next step."""
        self._requested = True

    def step(self, changed: ChangedCases | None) -> bool:
        """Check the files if a reload was requested; stop the consumer if they are valid."""
        if self._requested:
            self._requested = False
            try:
                self._check()
            except EvaltapError as error:
                self._report(
                    f"cannot load the changed files, so the old ones stay in effect: {error}"
                )
            else:
                self._report("reloaded the changed files")
                self.accepted = True
                self.stop()
        return False

    def close(self) -> None:
        """Forget the consumer, whose memory would otherwise be kept until the next full collection."""
        self.stop = _nothing


_AT_MOST: Final = 0.5
"""Share of the watchdog's interval: systemd recommends two notifications within it."""


class Systemd:
    """Sends notifications to the socket that systemd names.  Without a socket, every method does nothing."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._address = environ.get("NOTIFY_SOCKET", "")
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
        self._send("STOPPING=1")

    def alive(self) -> None:
        """Notify the watchdog, if a notification is due."""
        if self._every and (now := time.monotonic()) - self._last >= self._every:
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


REQUEST_SECONDS: Final = 5.0
MOST_CONNECTIONS: Final = 20
_TEXT: Final = "text/plain; charset=utf-8"


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 16

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._slots = threading.BoundedSemaphore(MOST_CONNECTIONS)
        self.address_family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        super().__init__(address, handler)

    def process_request_thread(self, request, client_address) -> None:  # type: ignore[no-untyped-def]  # as socketserver's
        """Serve a connection, or close it if too many are open."""
        if not self._slots.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._slots.release()

    def handle_error(self, request, client_address) -> None:  # type: ignore[no-untyped-def]  # as socketserver's
        """Log nothing: clients may close connections early."""


@contextmanager
def serving(status: LiveStatus, host: str, port: int) -> Iterator[str]:
    """Serve during the block; yield the URL.  Raises InputError if the address cannot be bound."""
    answers: dict[str, Callable[[], tuple[int, str, str]]] = {
        "/healthz": lambda: (200, "ok\n", _TEXT) if status.moves else (503, "stuck\n", _TEXT),
        "/readyz": lambda: (200, "ready\n", _TEXT) if status.ready else (503, "not ready\n", _TEXT),
        "/metrics": lambda: (200, status.metrics, CONTENT_TYPE),
    }

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS
        server_version, sys_version = "evaltap", ""

        def do_GET(self) -> None:
            """Answer with a status and a text."""
            found = answers.get(self.path.partition("?")[0])
            code, text, kind = found() if found else (404, f"{', '.join(answers)}\n", _TEXT)
            if kind == CONTENT_TYPE and "application/openmetrics-text" in self.headers.get(
                "Accept", ""
            ):
                text, kind = open_metrics(text), OPEN_METRICS
            body = text.encode()
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("Cache-Control", "no-store")
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_HEAD = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Log nothing: probes arrive every few seconds."""

    try:
        server = _Server((host, port), Handler)
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InputError(
            f"--serve {host}:{port}: cannot listen there ({reason}); choose another address or port"
        ) from None
    thread = threading.Thread(
        target=server.serve_forever,
        kwargs={"poll_interval": 0.1},
        name="evaltap-serve",
        daemon=True,
    )
    thread.start()
    try:
        named = f"[{host}]" if ":" in host else host
        yield f"http://{named}:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
