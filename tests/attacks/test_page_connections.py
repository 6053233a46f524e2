"""The page and clients that send nothing, or read nothing: visitors get through."""

import http.client
import re
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from attacks.collecting import make_certificate
from attacks.test_collect_connections import STARTS, held
from evaltap.cli.main import main
from evaltap.evaluator.page.serving import MOST_CONNECTIONS
from evaltap.evaluator.store.database import Store

PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"


@contextmanager
def page(folder: Path) -> Iterator[int]:
    """Run `evaltap ui` in a process of its own, and yield its port."""
    path = folder / "x.duckdb"
    Store(path).close()
    command = [sys.executable, "-c", PROGRAM, "ui", str(path), "--port", "0"]
    process = subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    try:
        assert process.stdout is not None
        found = re.search(r":(\d+)/", process.stdout.readline())
        assert found is not None
        yield int(found[1])
    finally:
        process.kill()
        process.communicate()


def visit(port: int) -> int:
    visitor = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    visitor.request("GET", "/login")
    answer = visitor.getresponse()
    answer.read()
    visitor.close()
    return answer.status


@pytest.mark.slow
@pytest.mark.parametrize("kind", STARTS)
def test_connections_that_send_nothing_do_not_keep_visitors_out(tmp_path: Path, kind: str) -> None:
    with page(tmp_path) as port, held(port, MOST_CONNECTIONS + 20, STARTS[kind]):
        assert [visit(port) for _ in range(5)] == [200] * 5


@pytest.mark.slow
def test_clients_that_do_not_read_do_not_keep_visitors_out(tmp_path: Path) -> None:
    with page(tmp_path) as port, ExitStack() as opened:
        for _ in range(MOST_CONNECTIONS + 20):
            client = opened.enter_context(socket.create_connection(("127.0.0.1", port)))
            client.sendall(f"GET /login HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n\r\n".encode() * 40)

        assert [visit(port) for _ in range(5)] == [200] * 5


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_a_certificate_of_another_key_is_a_message(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    certificate, _ = make_certificate(tmp_path)
    (tmp_path / "other").mkdir()
    _, key = make_certificate(tmp_path / "other")
    Store(tmp_path / "x.duckdb").close()
    options = ["--tls-cert", str(certificate), "--tls-key", str(key)]

    assert main(["ui", str(tmp_path / "x.duckdb"), "--port", "0", *options]) == 2
    assert "expected PEM files that belong together" in capsys.readouterr().err
