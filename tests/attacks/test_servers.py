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

from support.builders.accounts import landed_and_dropped
from support.builders.waiting import wait_for
from support.servers.broker import free_port

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
        wait_for(lambda: answered(port, range(1)))
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


CELERY = """
import faulthandler, os, signal
faulthandler.register(signal.SIGUSR2)
from celery import Celery
from evaltap.recorder import Recorder

app = Celery("agents", broker="filesystem://", backend=None)
app.conf.update(
    broker_transport_options={
        "data_folder_in": os.environ["QUEUE"], "data_folder_out": os.environ["QUEUE"],
        "control_folder": os.environ["QUEUE"] + "-control",
    },
    worker_prefetch_multiplier=1,
    task_ignore_result=True,
)
recorder = Recorder(os.environ["AGENT_LOG"])

@app.task
def answer(number):
    with recorder.turn(session_id=f"c-{number}", user="Where is my order?") as turn:
        turn.tool("get_order", {"id": number}, result={"rows": [1] * 50})
        turn.respond("It ships on Friday.")
    with open(os.environ["DONE"], "a") as done:
        done.write("x")
"""
BILLIARD = """
import os, sys
import billiard
from evaltap.recorder import Recorder

recorder = Recorder(os.environ["AGENT_LOG"])

def work(first):
    for number in range(first, first + 10):
        with recorder.turn(session_id=f"b-{number}", user="u") as turn:
            turn.respond("a")

children = [billiard.Process(target=work, args=(10 * number,)) for number in range(12)]
for child in children: child.start()
for child in children: child.join()
"""
TASKS = 120


@pytest.mark.slow
def test_celerys_children_keep_every_turn(tmp_path: Path) -> None:
    (tmp_path / "agents.py").write_text(CELERY)
    (tmp_path / "queue").mkdir()
    log, done = tmp_path / "agent.log.db", tmp_path / "done"
    env = {**os.environ, "AGENT_LOG": str(log), "QUEUE": str(tmp_path / "queue"), "DONE": str(done)}
    send = f"import agents\nfor number in range({TASKS}): agents.answer.delay(number)"
    subprocess.run([sys.executable, "-c", send], cwd=tmp_path, env=env, check=True, timeout=60)
    worker = subprocess.Popen(
        [sys.executable, "-m", "celery", "-A", "agents", "worker", "-P", "prefork", "-c", "3",
         "--max-tasks-per-child", "10", "--without-gossip", "--without-mingle", "--without-heartbeat"],
        cwd=tmp_path, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        until = time.monotonic() + 90
        while time.monotonic() < until and not (done.exists() and done.stat().st_size >= TASKS):
            assert worker.poll() is None
            time.sleep(0.1)
    finally:
        worker.send_signal(signal.SIGTERM)
        said = ended(worker)

    finished = len(done.read_text())
    assert finished >= TASKS, said  # Celery may deliver a task twice
    written, dropped = landed_and_dropped(log)
    assert written + dropped == finished, said


def ended(worker: "subprocess.Popen[str]") -> str:
    """Wait for Celery's worker and return what it said.

    Celery's pool waits forever for a lock whose holder is gone.  Then the stacks must show nothing of ours.
    """
    try:
        return worker.communicate(timeout=60)[1]
    except subprocess.TimeoutExpired:
        os.killpg(worker.pid, signal.SIGUSR2)  # for the stacks of its processes
        time.sleep(3)
        os.killpg(worker.pid, signal.SIGKILL)
        said = worker.communicate()[1]
        assert "_help_stuff_finish" in said, said
        assert "evaltap/recorder/" not in said, said
        return said


@pytest.mark.slow
def test_children_of_billiard_keep_every_turn(tmp_path: Path) -> None:
    log = tmp_path / "agent.log.db"
    subprocess.run(
        [sys.executable, "-c", BILLIARD], env={**os.environ, "AGENT_LOG": str(log)}, check=True, timeout=60
    )  # fmt: skip

    assert landed_and_dropped(log) == (TASKS, 0)
