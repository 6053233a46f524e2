"""The consumer's HTTP endpoints for liveness, readiness and metrics.  They do not read the store."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Final

from evaltap.evaluator.pipeline.live.exposition import CONTENT_TYPE, OPEN_METRICS, open_metrics
from evaltap.evaluator.pipeline.live.status import LiveStatus
from evaltap.schemas.errors import InputError

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
