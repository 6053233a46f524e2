"""`collect` with more connections than it allows: honest senders get through."""

import asyncio
import http.client
import shutil
import socket
import ssl
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
import uvicorn

from attacks.collecting import CASE, JSON, Collect, collect, make_certificate
from evaltap.cli.receiving import MOST_CONNECTIONS
from evaltap.recorder.sources.connections import limited_connections

STARTS = {
    "silent": b"",
    "headless": b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\n",
    "without a body": (
        b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\n\r\n{"
    ),
}
HOLD = """
import selectors, socket, sys
port, count, start = int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3])
def connect():
    held = socket.create_connection(("127.0.0.1", port))
    held.setblocking(False)
    held.send(start)
    waiting.register(held, selectors.EVENT_READ)
waiting = selectors.DefaultSelector()
for _ in range(count):
    connect()
print("ready", flush=True)
while True:
    for key, _ in waiting.select():
        try:
            gone = not key.fileobj.recv(4096)
        except OSError:
            gone = True
        if gone:
            waiting.unregister(key.fileobj)
            key.fileobj.close()
"""


@contextmanager
def held(port: int, count: int, start: bytes) -> Iterator[None]:
    """Hold connections in a process of its own, so that the limit of open files is not shared."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(port), str(count), start.hex()],
        stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield
    finally:
        process.kill()
        process.communicate()


def answers(server: Collect, count: int = 20) -> Counter[int]:
    return Counter(server.post(CASE.read_bytes()) for _ in range(count))


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTS)
def test_connections_that_send_nothing_do_not_keep_senders_out(tmp_path: Path, kind: str) -> None:
    with collect(tmp_path) as server, held(server.port, MOST_CONNECTIONS + 400, STARTS[kind]):
        assert answers(server) == {200: 20}
        assert server.megabytes() < 400
        _, said = server.stop()

    assert "1 turn recorded, 1 on the log" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_handshakes_that_never_end_do_not_keep_senders_out(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    context = ssl.create_default_context(cafile=str(certificate))
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with collect(tmp_path, *options) as server, held(server.port, 900, b""):
        for _ in range(20):
            sender = http.client.HTTPSConnection("localhost", server.port, context=context)
            sender.request("POST", "/v1/traces", CASE.read_bytes(), {"content-type": JSON})
            assert sender.getresponse().status == 200
            sender.close()
        assert server.megabytes() < 400
        _, said = server.stop()

    assert "1 turn recorded, 1 on the log" in said
    assert "Traceback" not in said


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_handshake_of_no_tls_ends_its_connection(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    with collect(tmp_path, "--tls-cert", str(certificate), "--tls-key", str(key)) as server:
        for _ in range(MOST_CONNECTIONS + 50):
            with socket.create_connection(("127.0.0.1", server.port), timeout=5) as plain:
                plain.sendall(b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n")
                assert b"200" not in plain.recv(100)
        _, said = server.stop()

    assert "Traceback" not in said


class HeldAnswers:
    """An ASGI application that answers when it is allowed to."""

    def __init__(self) -> None:
        self.allowed = threading.Event()
        self.begun = threading.Semaphore(0)
        self.complete = threading.Semaphore(0)

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.begun.release()
        await receive()
        self.complete.release()
        await asyncio.to_thread(self.allowed.wait, 30)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})


def request_on(port: int) -> http.client.HTTPConnection:
    sender = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    sender.request("POST", "/", b"x")
    return sender


@contextmanager
def serving(application: HeldAnswers, limit: int) -> Iterator[int]:
    """Serve an application with limited connections, and yield the port."""
    config = uvicorn.Config(
        application, lifespan="off", log_level="critical", http=limited_connections(limit),
        limit_concurrency=limit,
    )  # fmt: skip
    server = uvicorn.Server(config)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=server.run, args=([listener],))
        thread.start()
        try:
            yield listener.getsockname()[1]
        finally:
            application.allowed.set()
            server.should_exit = True
            thread.join(10)


def test_complete_requests_are_answered_and_the_next_gets_503() -> None:
    application = HeldAnswers()
    with serving(application, limit=5) as port:
        complete = [request_on(port) for _ in range(4)]
        for _ in complete:
            assert application.complete.acquire(timeout=10)

        refused = request_on(port).getresponse()
        application.allowed.set()
        answered = [sender.getresponse().status for sender in complete]

    assert refused.status == 503
    assert answered == [200] * 4


def test_a_body_that_stalls_gets_503_before_it_is_cut_off() -> None:
    application = HeldAnswers()
    with serving(application, limit=3) as port, ExitStack() as opened:
        stalled = opened.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
        stalled.sendall(b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n")
        assert application.begun.acquire(timeout=10)
        for _ in range(3):
            opened.enter_context(socket.create_connection(("127.0.0.1", port)))

        said = stalled.recv(1000)

    assert said.startswith(b"HTTP/1.1 503")
    assert b"retry-after: 1" in said
