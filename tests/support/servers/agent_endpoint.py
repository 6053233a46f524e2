"""An HTTP endpoint that a test scripts, as the agent of an experiment."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

JSON = "application/json"
Answer = Callable[[dict[str, Any], Any], tuple[int, str, str]]
"""From a request's body and headers to status, content type and body."""


@contextmanager
def serving(answer: Answer) -> Iterator[str]:
    """Serve an endpoint; yield its address."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, kind, reply = answer({"path": self.path, **body}, self.headers)
            self.send_response(status)
            self.send_header("Content-Type", kind)
            if status == 429:
                self.send_header("Retry-After", "0")
            if status == 302:
                self.send_header("Location", "/elsewhere")
            self.end_headers()
            self.wfile.write(reply.encode())

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
