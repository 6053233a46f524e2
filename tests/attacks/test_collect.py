"""`collect` and hostile senders: it answers, stays small, stops in time and admits no intruder."""

import gzip
import http.client
import os
import shutil
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest

from attacks.collecting import CASE, JSON, PROTOBUF, collect, make_certificate
from evaltap.recorder.sources.connections import HEADER_SECONDS
from evaltap.recorder.telemetry import parts
from evaltap.recorder.telemetry.otlp_protobuf import decode_traces
from evaltap.schemas.errors import FormatError


def empty_json() -> bytes:
    return b'{"resourceSpans":[' + b",".join([b"{}"] * 1_200_000) + b"]}"


# Made by the tests that send them: they take 70 MB, and every worker imports this file.
FLOODS: dict[str, tuple[Callable[[], bytes], str, str, set[int]]] = {
    "JSON of nothing, inflated": (lambda: gzip.compress(empty_json() * 4), JSON, "gzip", {413}),
    "JSON of nothing": (lambda: empty_json()[:4_000_000] + b"]}", JSON, "identity", {400, 413}),
    "empty resources": (lambda: b"\x0a\x00" * 5_000_000, PROTOBUF, "identity", {400}),
    "empty spans": (lambda: gzip.compress(empty_spans()), PROTOBUF, "gzip", {400}),
    "gzip members of nothing": (lambda: gzip.compress(b"") * 900_000, PROTOBUF, "gzip", {400}),
    "lists in lists": (lambda: b'{"resourceSpans":' + b"[" * 3_000_000, JSON, "identity", {400}),
}


def length_delimited(tag: int, body: bytes) -> bytes:
    size, digits = len(body), bytearray([tag << 3 | 2])
    while size > 0x7F:
        digits.append(size & 0x7F | 0x80)
        size >>= 7
    return bytes([*digits, size]) + body


def empty_spans() -> bytes:
    return length_delimited(1, length_delimited(2, b"\x12\x00" * 4_000_000))


def empty_attributes() -> bytes:
    return length_delimited(1, length_delimited(2, length_delimited(2, b"\x4a\x00" * 4_000_000)))


@pytest.mark.slow
@pytest.mark.parametrize("name", FLOODS)
def test_no_small_request_keeps_others_waiting(tmp_path: Path, name: str) -> None:
    make, kind, encoding, codes = FLOODS[name]
    body = make()
    with collect(tmp_path) as server:
        began = time.monotonic()
        code = server.post(body, kind, content_encoding=encoding)
        took = time.monotonic() - began

        assert code in codes
        assert took < 8
        assert server.health()[0] < 2
        assert server.post(CASE.read_bytes()) == 200
        assert server.megabytes() < 400


@pytest.mark.slow
@pytest.mark.parametrize("body", [empty_spans, empty_attributes, lambda: b"\x0a\x00" * 200_000])
def test_parts_are_counted_before_anything_is_made_of_them(body: Callable[[], bytes]) -> None:
    with pytest.raises(FormatError, match="parts"):
        parts.check_protobuf(body(), parts.TRACES)


@pytest.mark.parametrize(
    "body", [b"", b"\xff" * 50, b"\x0a\xff\xff\xff\xff\x0f", os.urandom(2_000)]
)
def test_what_is_no_message_is_left_to_its_reader(body: bytes) -> None:
    parts.check_protobuf(body, parts.TRACES)


def test_honest_requests_are_not_counted_out() -> None:
    span = length_delimited(1, b"t" * 16) + length_delimited(5, b"name" * 100)
    attribute = length_delimited(9, length_delimited(1, b"key") + length_delimited(2, b""))
    spans = b"".join(length_delimited(2, span + attribute * 8) for _ in range(8_192))
    body = length_delimited(1, length_delimited(2, spans))

    parts.check_protobuf(body, parts.TRACES)
    assert decode_traces(body)


@pytest.mark.slow
def test_bodies_that_never_end_take_bounded_memory(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        senders = []
        for _ in range(40):
            sender = socket.create_connection(("127.0.0.1", server.port))
            sender.sendall(
                b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-protobuf\r\n"
                b"Transfer-Encoding: chunked\r\n\r\n"
            )
            senders.append(sender)
            with suppress(OSError):
                for _ in range(19):
                    sender.sendall(b"100000\r\n" + bytes(1 << 20) + b"\r\n")

        assert server.health()[0] < 3
        assert server.megabytes() < 400
        for sender in senders:
            sender.close()
        time.sleep(0.5)
        assert server.post(CASE.read_bytes()) == 200
        _, said = server.stop()

    assert "Traceback" not in said


@pytest.mark.slow
def test_a_stalled_body_does_not_hold_the_end_up(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        assert server.post(CASE.read_bytes()) == 200
        senders = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(5)]
        for sender in senders:
            sender.sendall(
                b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                b"Content-Length: 1000\r\n\r\n{"
            )
        time.sleep(0.3)

        took, said = server.stop()

    assert took < 10
    assert "1 turn recorded, 1 on the log" in said
    assert "Traceback" not in said


@pytest.mark.slow
def test_clients_that_go_away_are_not_written_about(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        for _ in range(20):
            with socket.create_connection(("127.0.0.1", server.port)) as sender:
                sender.sendall(
                    b"POST /v1/traces HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    b"Content-Length: 1000\r\n\r\n{"
                )
        time.sleep(0.5)
        _, said = server.stop()

    assert len(said.splitlines()) < 5, said


@pytest.mark.slow
def test_headers_that_do_not_come_end_the_connection(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        senders = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(100)]
        until = time.monotonic() + HEADER_SECONDS + 5
        for sender in senders:
            sender.sendall(b"POST /v1/traces HTTP/1.1\r\n")
        while time.monotonic() < until - 6:
            for sender in senders:
                with suppress(OSError):
                    sender.sendall(b"X-A: b\r\n")
            time.sleep(1)
        for sender in senders:
            sender.settimeout(max(0.1, until - time.monotonic()))
            with suppress(ConnectionError):
                assert sender.recv(1) == b""
            sender.close()


def test_only_who_has_the_token_may_send(tmp_path: Path) -> None:
    with collect(tmp_path, EVALTAP_COLLECT_TOKEN="s3cret-token") as server:
        assert server.post(CASE.read_bytes()) == 401
        assert server.post(CASE.read_bytes(), authorization="Bearer wrong") == 401
        assert server.post(CASE.read_bytes(), authorization="Basic s3cret-token") == 401
        assert server.health()[1] == {"status": "ok"}
        assert server.post(CASE.read_bytes(), authorization="Bearer s3cret-token") == 200
        assert "recorded" in server.health(authorization="Bearer s3cret-token")[1]


def test_a_page_with_another_name_for_this_machine_is_turned_away(tmp_path: Path) -> None:
    with collect(tmp_path) as server:
        assert server.post(CASE.read_bytes(), host="evil.example") == 403
        assert server.post(CASE.read_bytes(), host="evil.example:4318") == 403
        assert server.post(CASE.read_bytes(), host="localhost:4318") == 200


def test_every_gzip_member_is_read_and_null_is_no_request(tmp_path: Path) -> None:
    body = CASE.read_bytes()
    two = gzip.compress(body[:500]) + gzip.compress(body[500:])
    with collect(tmp_path) as server:
        assert server.post(two, content_encoding="gzip") == 200
        assert server.post(two[:-9], content_encoding="gzip") == 400
        assert server.post(two + b"rest", content_encoding="gzip") == 400
        assert server.post(b"null") == 400
        assert server.post(b"[]") == 400
        _, said = server.stop()
    assert "1 turn recorded" in said


PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"


@pytest.mark.parametrize(
    ("options", "environ", "told"),
    [
        (["--host", "0.0.0.0"], {}, "EVALTAP_COLLECT_TOKEN and TLS"),
        (["--host", "::"], {"EVALTAP_COLLECT_TOKEN": "t"}, "TLS"),
        (["--tls-cert", "a.pem"], {}, "--tls-key"),
        (["--tls-cert", "no.pem", "--tls-key", "no.pem"], {}, "cannot load them"),
    ],
)
def test_it_does_not_listen_to_other_machines_unprotected(
    tmp_path: Path, options: list[str], environ: dict[str, str], told: str
) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, "collect", "--log", str(tmp_path / "log.db"), *options],
        env={**os.environ, **environ}, capture_output=True, text=True, timeout=30,
    )  # fmt: skip

    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_with_a_certificate_it_speaks_tls(tmp_path: Path) -> None:
    certificate, key = make_certificate(tmp_path)
    options = ("--tls-cert", str(certificate), "--tls-key", str(key))
    with collect(tmp_path, *options) as server:
        context = ssl.create_default_context(cafile=str(certificate))
        connection = http.client.HTTPSConnection("localhost", server.port, context=context)
        connection.request("POST", "/v1/traces", CASE.read_bytes(), {"content-type": JSON})
        assert connection.getresponse().status == 200
        connection.close()
