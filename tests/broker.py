"""A real broker that speaks the protocol of Kafka, for tests: a process of our own that can be stopped."""

import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

START_SECONDS = 20.0
STOP_SECONDS = 20.0


class Broker:
    """A broker process of our own on a free port; `stop` kills it, `start` brings it back."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def start(self) -> None:
        places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        program = shutil.which("noida-db", path=places)
        assert program, "the development dependency noida-db is not installed"
        self._process = subprocess.Popen(
            [program, "start", "--only", "kafka", "--kafka-port", str(self._port),
             "--data-dir", str(self._folder)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,  # the program is a wrapper: the broker is its child
        )  # fmt: skip
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self._listens():
                return
            time.sleep(0.02)
        raise TimeoutError("the broker did not start")

    def stop(self) -> None:
        """Stop it in order, and wait until its port is free: what it acknowledged is on its disk."""
        if self._process is None:
            return
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(20)
        self._process = None
        deadline = time.monotonic() + STOP_SECONDS
        while self._listens():
            if time.monotonic() > deadline:
                raise TimeoutError("the broker did not stop")
            time.sleep(0.02)

    def _listens(self) -> bool:
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self._port)) == 0
