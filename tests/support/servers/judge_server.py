"""A local HTTP server that speaks OpenAI's chat completions and answers from a script."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass
class Answer:
    """One response: a message text, or a raw body with its status."""

    text: str | None = None
    status: int = 200
    body: bytes | None = None
    act: Callable[[BaseHTTPRequestHandler], None] | None = None
    """Does something else than answering."""
    message: dict[str, Any] = field(default_factory=dict)
    finish_reason: str = "stop"

    def encoded(self) -> bytes:
        """Return the body as it goes over the wire."""
        if self.body is not None:
            return self.body
        if self.status != 200:
            return json.dumps({"error": {"message": self.text}}).encode()
        message = {"role": "assistant", "content": self.text, **self.message}
        return json.dumps(
            {
                "id": "c-1",
                "object": "chat.completion",
                "created": 0,
                "model": "served-model",
                "choices": [{"index": 0, "finish_reason": self.finish_reason, "message": message}],
                "usage": {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18},
            }
        ).encode()


@dataclass
class JudgeServer:
    """The server's address and what it was asked: (headers, body) of each request."""

    url: str
    requests: list[tuple[dict[str, str], dict[str, Any]]] = field(default_factory=list)


@contextmanager
def judge_server(script: Callable[[dict[str, Any]], Answer]) -> Iterator[JudgeServer]:
    """Serve answers of `script` to request bodies until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.path == "/v1/chat/completions"
            served.requests.append(({k.lower(): v for k, v in self.headers.items()}, body))
            answer = script(body)
            if answer.act is not None:
                self.close_connection = True
                answer.act(self)
                return
            data = answer.encoded()
            self.send_response(answer.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            # The SDK waits this long before it tries again; tests do not want to wait.
            self.send_header("Retry-After-Ms", "1")
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: object) -> None:
            """Stay silent."""

    class Server(ThreadingHTTPServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Say nothing about clients that did not wait for their answer."""

    server = Server(("127.0.0.1", 0), Handler)
    served = JudgeServer(f"http://127.0.0.1:{server.server_address[1]}/v1")
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield served
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
