"""Recorded tools over HTTP: what a request may be, and what is answered to one that is none."""

import json
import socket
import struct
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

import pytest

from evaltap.experiments.mocks.served import MockServer
from evaltap.recorder.answering import RecordedError

CHUNKED = "Transfer-Encoding: chunked\r\n\r\n"


@pytest.fixture
def url() -> Iterator[str]:
    """Offer a tool that answers with its arguments; yield the address."""
    server = MockServer()
    with server.offering([], lambda name, arguments: {name: arguments}) as url:
        yield url
    server.close()


def sent(url: str, headers_and_body: str | bytes) -> tuple[list[str], list[Any]]:
    """Send a call, and another one after it; return the statuses and the replies."""
    address = urlsplit(url)
    host, port = address.netloc.split(":")
    given = headers_and_body if isinstance(headers_and_body, bytes) else headers_and_body.encode()
    first = f"POST {address.path}/tools/find HTTP/1.1\r\n".encode()
    second = f"POST {address.path}/tools/next HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(first + given + second)
        replies = connection.makefile("rb").read().decode()
    parts = [one.partition("\r\n\r\n") for one in replies.split("HTTP/1.1 ")[1:]]
    return [head[:3] for head, _, _ in parts], [json.loads(body) for _, _, body in parts]


def test_an_agent_that_does_not_wait_for_its_answer_leaves_no_traceback(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    address = urlsplit(url)
    for _ in range(3):
        with socket.create_connection((address.hostname, address.port)) as connection:
            connection.sendall(f"POST {address.path}/tools/find HTTP/1.1\r\n\r\n".encode())
            reset = struct.pack("ii", 1, 0)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, reset)

    assert sent(url, "\r\n")[0] == ["200", "200"]
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("told", [None, {"status": "sold out"}])
def test_a_failed_call_tells_its_error_and_what_the_model_was_told(told: Any) -> None:
    def fail(name: str, arguments: object) -> object:
        failure = RecordedError("E")
        failure.result = told
        raise failure

    server = MockServer()
    with server.offering([], fail) as url:
        _, replies = sent(url, "\r\n")
    server.close()

    assert replies[0] == {"error": "E"} | ({} if told is None else {"result": told})


@pytest.mark.parametrize(
    "headers_and_body",
    [
        'Content-Length: 8\r\n\r\n{"x": 1}',
        f'{CHUNKED}3\r\n{{"x\r\n5;name=value\r\n": 1}}\r\n0\r\n\r\n',
        f'{CHUNKED}8\r\n{{"x": 1}}\r\n0\r\nTrailer: value\r\n\r\n',
    ],
)
def test_arguments_are_read_however_they_are_sent(url: str, headers_and_body: str) -> None:
    statuses, replies = sent(url, headers_and_body)

    assert statuses == ["200", "200"]
    assert replies == [{"result": {"find": {"x": 1}}}, {"result": {"next": {}}}]


@pytest.mark.parametrize(
    "body", ["[" * 100_000 + "]" * 100_000, '{"x": NaN}', '{"x": ', "\xe4".encode("latin-1")]
)
def test_what_is_no_json_is_refused_and_the_next_call_is_answered(
    url: str, body: str | bytes
) -> None:
    data = body.encode() if isinstance(body, str) else body

    statuses, replies = sent(url, f"Content-Length: {len(data)}\r\n\r\n".encode() + data)

    assert statuses == ["400", "200"]
    assert replies[0] == {"error": "expected JSON"}


@pytest.mark.parametrize(
    ("headers_and_body", "status", "why"),
    [
        (f"Content-Length: {2**30}\r\n\r\n{{}}", "413", "expected at most 16777216 bytes"),
        (f"{CHUNKED}7fffffff\r\n{{}}", "413", "expected at most 16777216 bytes"),
        (f"{CHUNKED}zz\r\n{{}}", "400", "expected the size of a chunk"),
        (f"{CHUNKED}1\r\n{{}}\r\n0\r\n\r\n", "400", "a chunk is longer than it says"),
        ("Transfer-Encoding: gzip\r\n\r\n{}", "501", "expected chunked"),
        ("Content-Length: -1\r\n\r\n{}", "400", "expected a number"),
    ],
)
def test_a_call_that_cannot_be_read_is_refused_and_nothing_after_it_is_a_request(
    url: str, headers_and_body: str, status: str, why: str
) -> None:
    statuses, replies = sent(url, headers_and_body)

    assert statuses == [status]
    assert why in replies[0]["error"]


def test_agents_that_call_at_once_wait_for_their_answers(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = urlsplit(url)
    asked = f"POST {address.path}/tools/find HTTP/1.1\r\nConnection: close\r\n\r\n".encode()
    is_ready, answer = threading.Event(), ThreadingHTTPServer.process_request

    def late(*given: Any) -> None:
        is_ready.wait(30)
        answer(*given)

    monkeypatch.setattr(ThreadingHTTPServer, "process_request", late)

    connections = []
    for _ in range(100):
        connections.append(socket.create_connection((address.hostname, address.port), timeout=5))
        connections[-1].sendall(asked)
    is_ready.set()

    for one in connections:
        with one, one.makefile("rb") as reply:
            assert reply.readline().split()[1] == b"200"
