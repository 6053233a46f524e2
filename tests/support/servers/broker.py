"""Real brokers for tests: processes that can be stopped and killed, or a given cluster.

Take the fixture `broker` (tests/conftest.py): it runs a test over each available kind of broker. Topics and
consumer groups outlive a test on some of them, so a test takes its names from the broker.
"""

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import pytest

START_SECONDS = 180.0
STOP_SECONDS = 60.0


class Program(Protocol):
    """How a broker is started."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Return the command that serves `port` with its data below `folder`, after any set-up."""
        ...


class NoidaDb:
    """The broker of the package noida-db: it starts in no time, and saves a moment after it answers."""

    def command(self, folder: Path, port: int) -> list[str]:
        """Return the command; nothing needs to be set up."""
        places = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        program = shutil.which("noida-db", path=places)
        assert program, "the development dependency noida-db is not installed"
        # fmt: off
        return [program, "start", "--only", "kafka", "--kafka-port", str(port),
                "--data-dir", str(folder)]
        # fmt: on


class Broker:
    """A broker process on a port of its own; `stop` and `kill` end it, `start` brings it back there."""

    def __init__(self, folder: Path, program: Program | None = None) -> None:
        self.port = free_port()
        self._folder = folder
        self._program = program or NoidaDb()
        self._process: subprocess.Popen[bytes] | None = None
        self._suffix = ""
        self.renew_names()

    @property
    def address(self) -> str:
        """Where clients find it, as host:port."""
        return f"127.0.0.1:{self.port}"

    @property
    def is_apache(self) -> bool:
        """Whether this is Apache Kafka itself, for what others cannot do."""
        return not isinstance(self._program, NoidaDb)

    def name(self, plain: str) -> str:
        """Return the name of a topic or group for this test, always the same for the same `plain`."""
        return f"{plain}-{self._suffix}"

    def log(self, *topics: str, form: str | None = None) -> str:
        """Return the URL of a log over topics of this test, by default `evaltap.cases`."""
        names = ",".join(self.name(topic) for topic in topics or ("evaltap.cases",))
        return f"kafka://{self.address}/{names}" + (f"?format={form}" if form else "")

    def renew_names(self) -> None:
        """Begin a test: no topic of another one is seen."""
        self._suffix = uuid.uuid4().hex[:8]

    def must_be_ours(self) -> None:
        """Skip the test here, before it began anything, if it could not stop this broker."""

    def start(self) -> None:
        """Start it, unless it runs, and wait until it answers."""
        if self._process is not None and self._process.poll() is None:
            return
        self._folder.mkdir(parents=True, exist_ok=True)
        output = self._folder.with_name(self._folder.name + ".out")
        with output.open("ab") as file:
            self._process = subprocess.Popen(
                self._program.command(self._folder, self.port),
                stdout=file,
                stderr=file,
                start_new_session=True,  # the program may be a wrapper: the broker is its child then
            )
        deadline = time.monotonic() + START_SECONDS
        while not listens(self.port):
            if time.monotonic() > deadline or self._process.poll() is not None:
                raise TimeoutError(f"the broker did not start:\n{output.read_text()[-2000:]}")
            time.sleep(0.02)

    def stop(self) -> None:
        """Stop it in order: what it acknowledged is on its disk."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Kill it: of what it acknowledged it keeps what it had handed to its disk."""
        self._end(signal.SIGKILL)

    def freeze(self) -> None:
        """Stop it in its tracks: it takes connections and answers nothing, until `thaw`."""
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Let it go on after `freeze`."""
        self._signal(signal.SIGCONT)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None, "the broker does not run"
        os.killpg(self._process.pid, number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is None:
            return
        if self._process.poll() is None:
            self._signal(number)
            self._signal(signal.SIGCONT)
        self._process.wait(STOP_SECONDS)
        self._process = None
        deadline = time.monotonic() + STOP_SECONDS
        while listens(self.port):
            if time.monotonic() > deadline:
                raise TimeoutError("the broker did not stop")
            time.sleep(0.02)


class GivenCluster(Broker):
    """A cluster that somebody else runs, EVALTAP_TEST_KAFKA=host:port; tests that would stop it skip."""

    def __init__(self, address: str) -> None:
        super().__init__(Path())
        self._address = address
        self.port = int(address.rpartition(":")[2])

    @property
    def address(self) -> str:
        return self._address

    @property
    def is_apache(self) -> bool:
        return True

    def start(self) -> None:
        """Do nothing: it runs."""

    def must_be_ours(self) -> None:
        """Skip the test."""
        pytest.skip("the cluster of EVALTAP_TEST_KAFKA is not ours to stop")

    def _signal(self, number: signal.Signals) -> None:
        self.must_be_ours()

    def _end(self, number: signal.Signals) -> None:
        self.must_be_ours()


def free_port() -> int:
    """Return a port of this machine that nobody uses.

    Not one that the system would give out: a client's connection might take it before the broker does.
    """
    while True:
        port = secrets.randbelow(12_000) + 20_000
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", port))
            return port


def listens(port: int) -> bool:
    """Tell whether anybody takes connections on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0
