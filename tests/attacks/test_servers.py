"""Agents in the processes of a server: every request is answered, every turn is on the log or counted."""

import http.client
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path

import pytest

from accounts import landed_and_dropped
from broker import free_port

APP = """
import os
from evaltap.recorder import Recorder

recorder = Recorder(os.environ["AGENT_LOG"])

def app(environ, start_response):
    with recorder.turn(session_id=environ["PATH_INFO"], user="Where is my order?") as turn:
        turn.tool("get_order", {"id": 1}, result={"rows": [1] * 50})
        turn.respond("It ships on Friday.")
    start_response("200 OK", [("Content-Length", "2")])
    return [b"ok"]
"""
REQUESTS = 400


def answered(port: int, numbers: range) -> int:
    found = 0
    for number in numbers:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=20)
        with suppress(OSError, http.client.HTTPException):
            connection.request("GET", f"/s-{number}")
            found += connection.getresponse().read() == b"ok"
        connection.close()
    return found


@pytest.mark.parametrize(
    ("kind", "preload"),
    [
        ("gevent", True),
        pytest.param("gevent", False, marks=pytest.mark.slow),
        pytest.param("gthread", True, marks=pytest.mark.slow),
        pytest.param("gthread", False, marks=pytest.mark.slow),
        pytest.param("sync", True, marks=pytest.mark.slow),
        pytest.param("sync", False, marks=pytest.mark.slow),
    ],
)
def test_gunicorn_answers_every_request(tmp_path: Path, kind: str, preload: bool) -> None:
    (tmp_path / "agent_app.py").write_text(APP)
    port, log = free_port(), tmp_path / "agent.log.db"
    options = ["--preload"] if preload else []
    server = subprocess.Popen(
        [sys.executable, "-m", "gunicorn", "-w", "3", "-k", kind, "--timeout", "10", *options,
         "--chdir", str(tmp_path), "-b", f"127.0.0.1:{port}", "agent_app:app"],
        env={**os.environ, "AGENT_LOG": str(log)}, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + 30
        while not answered(port, range(1)) and time.monotonic() < until:
            time.sleep(0.1)
        with ThreadPoolExecutor(8) as senders:
            shares = [range(at, REQUESTS, 8) for at in range(8)]
            found = sum(senders.map(lambda share: answered(port, share), shares))
    finally:
        server.send_signal(signal.SIGTERM)
        _, said = server.communicate(timeout=40)

    assert found == REQUESTS
    assert "WORKER TIMEOUT" not in said
    written, dropped = landed_and_dropped(log)
    assert written + dropped == REQUESTS + 1  # the one that found the server ready
