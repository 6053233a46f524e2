"""Runs `evaltap collect` in a process of its own, and sends to it."""

import http.client
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from support.servers.broker import free_port

JSON, PROTOBUF = "application/json", "application/x-protobuf"
CASE = Path(__file__).parents[1] / "data/spans/adk-v2span/parallel_tools.otlp.json"


def make_certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for localhost and its key with openssl, and return their paths."""
    certificate, key = folder / "c.pem", folder / "k.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost",
         "-addext", "subjectAltName=DNS:localhost", "-out", certificate, "-keyout", key],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


@dataclass
class Collect:
    """A running `evaltap collect`."""

    process: subprocess.Popen[str]
    port: int

    def post(self, body: bytes, kind: str = JSON, path: str = "/v1/traces", **headers: str) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        given = {key.replace("_", "-"): value for key, value in headers.items()}
        with suppress(BrokenPipeError, ConnectionResetError):  # it had read enough
            connection.request("POST", path, body, {"content-type": kind, **given})
        answer = connection.getresponse()
        answer.read()
        connection.close()
        return answer.status

    def health(self, **headers: str) -> tuple[float, dict[str, object]]:
        began = time.monotonic()
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        connection.request("GET", "/health", headers=headers)
        found = json.loads(connection.getresponse().read())
        connection.close()
        return time.monotonic() - began, found

    def megabytes(self) -> int:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.partition("VmHWM:")[2].split()[0]) // 1024

    def stop(self) -> tuple[float, str]:
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        _, said = self.process.communicate(timeout=40)
        return time.monotonic() - began, said


@contextmanager
def collect(folder: Path, *options: str, **environ: str) -> Iterator[Collect]:
    port = free_port()
    program = "import sys; from evaltap.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", program, "collect", "--log", str(folder / "log.db"),
               "--port", str(port), *options]  # fmt: skip
    process = subprocess.Popen(
        command, stderr=subprocess.PIPE, text=True, env={**os.environ, **environ}
    )
    try:
        assert process.stderr is not None
        assert "/v1/traces" in process.stderr.readline()
        yield Collect(process, port)
    finally:
        process.kill()
        process.wait()
        if process.stderr:
            process.stderr.close()
