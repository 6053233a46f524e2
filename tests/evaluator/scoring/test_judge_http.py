"""The HTTP client of judges against servers with many variants of HTTP, and some that violate it."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

from evaltap.evaluator.scoring.judges.http import (
    LARGEST_RESPONSE,
    BrokenResponseError,
    HttpClient,
    NoAnswerInTimeError,
    NotSentError,
    ResponseTooLargeError,
    StaleConnectionError,
)
from evaltap.schemas.errors import ConfigurationError
from support.servers.broker import free_port

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Server:
    """Answers each request on a connection with the next bytes; an empty answer closes it."""

    def __init__(self, answers: list[bytes | Callable[[socket.socket], None]]) -> None:
        self._answers = iter(answers)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.requests: list[bytes] = []
        self.connections = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return
            self.connections += 1
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, suppress(OSError):  # a client that did not wait
            while request := self._request(connection):
                self.requests.append(request)
                answer = next(self._answers)
                if callable(answer):
                    answer(connection)
                elif answer:
                    connection.sendall(answer)
                if not answer or callable(answer) or b"connection: close" in answer.lower():
                    return

    def _request(self, connection: socket.socket) -> bytes:
        data = b""
        while b"\r\n\r\n" not in data or not data.endswith(b"}"):
            try:
                more = connection.recv(65536)
            except OSError:
                return b""
            if not more:
                return b""
            data += more
        return data

    def close(self) -> None:
        self._listener.close()


@contextmanager
def served(
    *answers: bytes | Callable[[socket.socket], None],
) -> Iterator[tuple[Server, HttpClient]]:
    server = Server(list(answers))
    client = HttpClient(f"http://{server.address}/v1/", "/ask", {"Authorization": "Bearer key"})
    try:
        yield server, client
    finally:
        client.close()
        server.close()


def ask(client: HttpClient, seconds: float = 5.0) -> bytes:
    return client.post(b"{}", seconds).body


def test_a_connection_is_used_again_and_the_request_is_one_piece() -> None:
    with served(OK, OK, OK) as (server, client):
        assert [ask(client) for _ in range(3)] == [b"ok"] * 3

        assert server.connections == 1
        assert server.requests[0].splitlines() == [
            b"POST /v1/ask HTTP/1.1",
            f"Host: {server.address}".encode(),
            b"Authorization: Bearer key",
            b"Content-Length: 2",
            b"",
            b"{}",
        ]


@pytest.mark.parametrize(
    "closing",
    [OK.replace(b"\r\n\r\n", b"\r\nConnection: Close\r\n\r\n"), OK.replace(b"1.1", b"1.0")],
)
def test_a_connection_that_the_server_closes_is_not_used_again(closing: bytes) -> None:
    with served(closing, OK) as (server, client):
        assert [ask(client), ask(client)] == [b"ok", b"ok"]
        assert server.connections == 2


def test_an_idle_connection_that_was_closed_meanwhile_costs_no_request() -> None:
    def and_closes(connection: socket.socket) -> None:
        connection.sendall(OK)

    with served(and_closes, OK) as (server, client):
        ask(client)
        time.sleep(0.1)  # the end of the connection arrives

        assert ask(client) == b"ok"
        assert len(server.requests) == 2


def test_a_kept_connection_that_ends_without_an_answer_is_told_apart() -> None:
    def nothing(connection: socket.socket) -> None:
        """Close without a word, as a server does whose time for idle connections is over."""

    with served(OK, nothing, nothing) as (server, client):
        ask(client)
        with pytest.raises(StaleConnectionError):
            ask(client)
        with pytest.raises(BrokenResponseError, match="closed without a response") as caught:
            ask(client)  # on a new connection

    assert not isinstance(caught.value, StaleConnectionError)
    assert len(server.requests) == 3


@pytest.mark.parametrize(
    ("answer", "body"),
    [
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1;x=y\r\nc\r\n0\r\n\r\n",
            b"abc",
        ),
        (b"HTTP/1.1 100 Continue\r\n\r\n" + OK, b"ok"),
        (b"HTTP/1.1 200 OK\nContent-Length: 2\n\nok", b"ok"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
    ],
    ids=["chunked", "continue", "bare line ends", "no content"],
)
def test_ways_to_answer(answer: bytes, body: bytes) -> None:
    with served(answer, OK) as (server, client):
        assert ask(client) == body
        assert ask(client) == b"ok", "nothing of the first response is left on the connection"
        assert server.connections == 1


def test_a_body_may_end_with_the_connection() -> None:
    with served(lambda one: one.sendall(b"HTTP/1.1 200 OK\r\n\r\nuntil the end"), OK) as (
        _,
        client,
    ):
        assert ask(client) == b"until the end"
        assert ask(client) == b"ok"


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"220 mail.example.com ESMTP\r\n",
        b"HTTP/1.1 abc\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1_0\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab",
        b"HTTP/1.1 200 OK\r\n" + b"x" * 70_000,
        b"HTTP/1.1 200 OK\r\n" + b"a: b\r\n" * 300,
    ],
    ids=lambda answer: str(answer[:50]),
)
def test_what_is_no_response_is_a_broken_connection(answer: bytes) -> None:
    with served(lambda one: one.sendall(answer)) as (_, client), pytest.raises(BrokenResponseError):
        ask(client)


@pytest.mark.parametrize(
    "head",
    [
        b"Content-Length: %d\r\n\r\n" % (LARGEST_RESPONSE + 1),
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % (LARGEST_RESPONSE + 1),
    ],
)
def test_a_response_that_is_too_large_is_not_read(head: bytes) -> None:
    with (
        served(lambda one: one.sendall(b"HTTP/1.1 200 OK\r\n" + head)) as (_, client),
        pytest.raises(ResponseTooLargeError),
    ):
        ask(client)


@pytest.mark.parametrize("start", [b"", b"HTTP/1.1 200 OK\r\nX: ", OK.replace(b": 2", b": 9999")])
def test_the_deadline_is_that_of_the_whole_response(start: bytes) -> None:
    def drip(connection: socket.socket) -> None:
        connection.sendall(start)
        for _ in range(600):
            time.sleep(0.05)
            connection.sendall(b"x")

    with served(drip) as (_, client):
        began = time.monotonic()
        with pytest.raises(NoAnswerInTimeError) as caught:
            ask(client, 0.3)

    assert time.monotonic() - began < 10
    assert caught.value.sent


def test_nobody_listens() -> None:
    client = HttpClient(f"http://127.0.0.1:{free_port()}", "/ask", {})

    with pytest.raises(NotSentError):
        ask(client)


def test_a_proxy_of_the_environment_is_used_unless_the_host_is_excepted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with served(OK) as (proxy, _):
        monkeypatch.setenv("http_proxy", f"http://user:p%40ss@{proxy.address}")
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)
        client = HttpClient("http://judge.example/v1", "/ask", {})

        assert ask(client) == b"ok"
        lines = proxy.requests[0].splitlines()
        assert lines[0] == b"POST http://judge.example/v1/ask HTTP/1.1"
        assert b"Proxy-Authorization: Basic dXNlcjpwQHNz" in lines
        client.close()

    with served(OK) as (server, _):
        monkeypatch.setenv("no_proxy", "127.0.0.1")
        direct = HttpClient(f"http://{server.address}/v1", "/ask", {})
        assert ask(direct) == b"ok"
        direct.close()


@pytest.mark.parametrize(
    ("url", "key"),
    [
        ("ftp://host", "k"), ("host", "k"), ("http://", "k"), ("http://host:port", "k"),
        ("http://host", "a\nb"), ("http://host", "käse"), ("http://host/ü", "k"), ("http://a b/", "k"),
        ("http://a\x7fb/", "k"), ("unix:///run/judge.sock", "k"), ("file:///etc/passwd", "k"),
    ],
)  # fmt: skip
def test_an_address_or_key_that_http_cannot_carry_is_a_configuration_error(
    url: str, key: str
) -> None:
    with pytest.raises(ConfigurationError):
        HttpClient(url, "/ask", {"Authorization": f"Bearer {key}"})
