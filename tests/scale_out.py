"""What tests of scale-out start: workers and sinks as processes of their own, and what they read after."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb

from broker import Broker
from cases import RUBRIC, make_case, make_records, make_turn
from evaltap.evaluator.topics import TopicWriter
from evaltap.schemas.record import WireRecord
from topics import location

_MAIN = "import sys; from evaltap.evaluator.cli import main; sys.exit(main())"
STOP_SECONDS = 60.0


def rubric(url: str, samples: int = 1, name: str = "llm_rubric_response") -> dict[str, Any]:
    """Return a judged metric whose judge is at a URL."""
    metric = json.loads(json.dumps(RUBRIC))
    metric["metricName"] = name
    metric["criterion"]["llmJudge"]["judgeModel"] |= {
        "baseURL": url, "apiKey": "k", "numSamples": samples,
    }  # fmt: skip
    return dict(metric)


def sessions(count: int, turns: int = 2) -> list[dict[str, Any]]:
    """Return one-turn cases, interleaved over sessions; every third session has no idea."""
    return [
        make_case(
            f"s-{number}",
            [make_turn(f"t-{turn}", answer="no idea" if number % 3 == 0 else f"answer {number}")],
            conversation=[make_turn(f"t-{turn}", answer=f"answer {number}")],
        )
        for turn in range(turns)
        for number in range(count)
    ]


def publish(url: str, records: Iterable[WireRecord]) -> None:
    """Write records to the topic of a URL and wait for the broker."""
    place = location(url)
    writer = TopicWriter(place, client_id="test")
    places = writer.write(place.topics[0], list(records))
    writer.close()
    assert None not in places, "a record is larger than the topic takes"


def record_sessions(broker: Broker, count: int, turns: int = 2) -> None:
    """Put sessions on the topic of the test."""
    publish(broker.log(), make_records(sessions(count, turns)))


class Program:
    """A running `evaltap` command; its output is kept."""

    def __init__(
        self, arguments: list[str], folder: Path, environ: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._output = folder / f"{arguments[0]}-{len(list(folder.glob('*.out')))}.out"
        self._folder = folder
        with self._output.open("wb") as out:
            self.process = subprocess.Popen(
                [sys.executable, "-c", _MAIN, *arguments],
                stdout=out,
                stderr=subprocess.STDOUT,
                env={**os.environ, **(environ or {})},
            )

    @property
    def output(self) -> str:
        """What it has said so far."""
        return self._output.read_text()

    @property
    def told(self) -> dict[str, Any]:
        """What it said as JSON, in its last line but for what libraries say at the end of a process."""
        return dict(json.loads([one for one in self.output.splitlines() if one[:1] == "{"][-1]))

    def send(self, number: int) -> None:
        """Send a signal."""
        self.process.send_signal(number)

    def kill(self) -> None:
        """Kill it."""
        self.process.kill()
        self.process.wait(STOP_SECONDS)

    def stop(self) -> int:
        """Stop it in good order and return its exit code."""
        if self.process.poll() is None:
            self.send(signal.SIGTERM)
            self.send(signal.SIGCONT)
        return self.process.wait(STOP_SECONDS)

    def wait(self, seconds: float = STOP_SECONDS) -> int:
        """Wait for its end and return its exit code."""
        try:
            return self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"still running; it said:\n{self.output}") from None


class ScaleOut:
    """A sink and its workers over the topics of a test."""

    def __init__(self, broker: Broker, folder: Path, metrics: list[dict[str, Any]]) -> None:
        self.broker = broker
        self.folder = folder
        self.db = folder / "sink.duckdb"
        self.metrics = folder / "metrics.json"
        self.metrics.write_text(json.dumps(metrics))
        self._programs: list[Program] = []

    def work(self, *more: str, environ: Mapping[str, str] | None = None) -> Program:
        """Start a worker."""
        return self._start(["work", "--json", "--threads", "2", *more], environ)

    def sink(
        self, *more: str, until_idle: bool = True, environ: Mapping[str, str] | None = None
    ) -> Program:
        """Start the sink."""
        idle = ["--until-idle"] if until_idle else []
        arguments = ["sink", "--json", "--db", str(self.db), "--metrics", str(self.metrics)]
        return self._start([*arguments, *idle, *more], environ)

    def consume(self, db: Path, *more: str) -> Program:
        """Land and score the same topic in one process."""
        return self._run(
            ["consume", "--db", str(db), "--metrics", str(self.metrics), "--until-idle", "--json",
             "--log", self.broker.log(), *more],
        )  # fmt: skip

    def query(self, statement: str, db: Path | None = None) -> list[tuple[Any, ...]]:
        """Return rows of the sink's file, which nobody may have open."""
        with duckdb.connect(str(db or self.db), read_only=True) as store:
            return store.execute(statement).fetchall()

    def close(self) -> None:
        """End what still runs."""
        for program in self._programs:
            if program.process.poll() is None:
                program.process.kill()
                program.process.wait(STOP_SECONDS)

    def _start(self, arguments: list[str], environ: Mapping[str, str] | None) -> Program:
        more = ["--log", self.broker.log(), "--group", self.broker.name("workers")]
        return self._run([*arguments, *more], environ)

    def _run(self, arguments: list[str], environ: Mapping[str, str] | None = None) -> Program:
        program = Program(arguments, self.folder / "out", environ)
        self._programs.append(program)
        return program


@contextmanager
def scale_out(broker: Broker, folder: Path, metrics: list[dict[str, Any]]) -> Iterator[ScaleOut]:
    """Give a sink and workers to a test, and end what it leaves running."""
    fleet = ScaleOut(broker, folder, metrics)
    try:
        yield fleet
    finally:
        fleet.close()


PLUGIN = """
import os, signal
from evaltap.evaluator import MetricScore, Status, TurnScore

class Odd:
    name = "odd"
    version = os.environ.get("ODD_VERSION", "1")

    def __init__(self, metric):
        pass

    def evaluate(self, context):
        if context.case["evalId"] == os.environ.get("ODD_KILLER"):
            os.kill(os.getpid(), signal.SIGKILL)
        turns = tuple(TurnScore(Status.PASSED, 1.0) for _ in context.actual)
        return MetricScore(Status.PASSED, 1.0, "", turns)
"""
ODD = {"metricName": "odd", "threshold": 1, "criterion": {"extra": {}}}


def install_odd(folder: Path) -> dict[str, str]:
    """Install an evaluator that kills its process over the case of `ODD_KILLER`; return the environment."""
    home = folder / "plugin"
    info = home / "odd-1.0.dist-info"
    info.mkdir(parents=True)
    (home / "odd.py").write_text(PLUGIN)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[evaltap.evaluators]\nodd = odd:Odd\n")
    return {"PYTHONPATH": str(home)}
