"""`evaltap up`: real senders, a real process, ended by signals in the midst of it."""

import http.client
import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.analysis.summaries.summaries import Summaries
from evaltap.evaluator.page.security.access import state_folder
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.remote.client import open_to_read
from support.builders.commands import runner
from support.builders.waiting import wait_for

CASE = Path(__file__).parents[1] / "data/spans/adk-v2span/parallel_tools.otlp.json"
METRICS = [
    {
        "metricName": "trajectory_max_calls",
        "threshold": 1,
        "criterion": {"trajectory": {"maxCalls": 10, "maxCallsPerTool": {"search": 3}}},
    }
]


@dataclass
class Up:
    """A running `evaltap up`."""

    process: subprocess.Popen[str]
    link: str = ""
    port: int = 0
    accepted: int = 0
    said: list[str] = field(default_factory=list)

    def post(self, number: int) -> bool:
        """Send one run as a trace of its own; False when nobody takes it any more."""
        body = CASE.read_text()
        for name in ("traceId", "spanId", "parentSpanId"):
            body = renumbered(body, name, number)
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.request(
                "POST", "/v1/traces", body.replace("sess-adk-2", f"s-{number}"),
                {"content-type": "application/json"},
            )  # fmt: skip
            taken = connection.getresponse().status == 200
        except OSError:
            taken = False
        finally:
            connection.close()
        self.accepted += taken
        return taken


def renumbered(body: str, name: str, number: int) -> str:
    """Give each id of a kind another beginning, so that nothing is the same trace."""
    data: Any = json.loads(body)

    def walk(value: Any) -> None:
        if isinstance(value, dict):
            if isinstance(value.get(name), str) and value[name]:
                value[name] = f"{number:08x}{value[name][8:]}"
            for one in value.values():
                walk(one)
        elif isinstance(value, list):
            for one in value:
                walk(one)

    walk(data)
    return json.dumps(data)


@contextmanager
def up(folder: Path, *more: str) -> Iterator[Up]:
    process = subprocess.Popen(
        [str(Path(sys.executable).with_name("evaltap")), "up", "--log", "agent.log.db", "--db", "x.duckdb",
         "--port", "0", "--ui", "127.0.0.1:0", *more],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        found = Up(process)
        while not found.link or not found.port:
            line = process.stdout.readline()
            assert line, process.stderr.read() if process.stderr else ""
            found.said.append(line)
            if "OTLP_ENDPOINT" in line:
                found.port = int(line.rpartition(":")[2])
            if "/login#" in line:
                found.link = line.split()[-1]
        yield found
    finally:
        process.kill()
        process.communicate()


def landed(folder: Path) -> tuple[int, int]:
    """Return turns and their scores; the summaries must say the same as the rows."""
    with Store(folder / "x.duckdb") as store:
        summaries = Summaries(store)
        while summaries.refresh().behind:
            pass
        kept = {table: sorted(store.rows(f"FROM {table}"), key=repr) for table in TABLES}
        summaries.make()
        assert kept == {table: sorted(store.rows(f"FROM {table}"), key=repr) for table in TABLES}
        ((turns,),) = store.rows("SELECT count(DISTINCT eval_id) FROM turns")
        ((scored,),) = store.rows(
            "SELECT count(DISTINCT eval_id) FROM turns JOIN turn_scores USING (eval_id, invocation_id)"
        )
        assert store.rows("SELECT sum(turns) FROM turns_by_hour") == store.rows(
            "SELECT nullif(count(*), 0) FROM latest_turns"
        )
    return turns, scored


TABLES = ("case_index", "turns_by_hour", "scores_by_hour", "latency_by_hour", "tools_by_hour")


@pytest.fixture(autouse=True)
def _state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "metrics.json").write_text(json.dumps(METRICS))


def test_wrong_metrics_are_told_before_anything_is_received(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("m.json").write_text('[{"metricName": "trajectory_max_calls", "threshhold": 1}]')

    code, out, err = runner(capsys)(
        "up", "--port", "0", "--ui", "127.0.0.1:0", "--metrics", "m.json"
    )

    assert (code, out) == (2, "")
    assert 'did you mean "threshold"?' in err
    assert not [*tmp_path.glob("*.db")]


@pytest.mark.slow
def test_a_signal_in_the_midst_of_it_ends_all_in_order_and_loses_nothing(tmp_path: Path) -> None:
    with up(tmp_path, "--metrics", "metrics.json") as running:
        sender = threading.Thread(
            target=lambda: [running.post(number) for number in range(1_000) if alive(running)]
        )
        sender.start()
        while running.accepted < 30:
            time.sleep(0.05)
        running.process.send_signal(signal.SIGTERM)
        code = running.process.wait(60)
        sender.join()
        said = running.process.stderr.read() if running.process.stderr else ""

    assert code == 0, said
    assert running.accepted >= 30
    assert landed(tmp_path) == (running.accepted, running.accepted)
    assert "dropped" in said


def wait_for_turns(folder: Path, count: int) -> None:
    """Look from outside until so many turns have landed."""

    def found() -> bool:
        with open_to_read(folder / "x.duckdb") as store:
            return bool(store.rows("SELECT count(*) FROM turns")[0][0] >= count)

    wait_for(found)


def alive(running: Up) -> bool:
    return running.process.poll() is None


@pytest.mark.slow
def test_what_a_killed_process_has_put_on_the_log_lands_with_the_next_start(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        for number in range(20):
            assert running.post(number)
        wait_for_turns(tmp_path, 10)
        running.process.kill()
        running.process.wait()
    with up(tmp_path) as again:
        for number in range(20, 25):
            assert again.post(number)
        again.process.send_signal(signal.SIGTERM)
        assert again.process.wait(60) == 0

    turns, _ = landed(tmp_path)
    assert 15 <= turns <= 25  # what the killed process had not assembled yet is gone with it


@pytest.mark.slow
def test_the_page_logs_in_by_its_link_and_shows_what_has_landed(tmp_path: Path) -> None:
    with up(tmp_path) as running:
        address, _, code = running.link.partition("/login#")
        host = address.removeprefix("http://")
        cookie = log_in(host, code)
        assert running.post(1)
        wait_for(lambda: '"matched":1' in cases(host, cookie))
        assert "s-1" in cases(host, cookie)
        running.process.send_signal(signal.SIGTERM)
        assert running.process.wait(60) == 0
    assert state_folder(tmp_path / "x.duckdb").exists()


def request(host: str, method: str, path: str, body: str = "", **headers: str) -> Any:
    port = int(host.rpartition(":")[2])
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=30)
    given = {"Host": host, **{name.replace("_", "-"): value for name, value in headers.items()}}
    connection.request(method, path, body, given)
    return connection.getresponse()


def log_in(host: str, code: str) -> str:
    answer = request(
        host, "POST", "/login", f"code={code}&next=/", Origin=f"http://{host}",
        Content_Type="application/x-www-form-urlencoded",
    )  # fmt: skip
    assert answer.status == 303
    return str(answer.headers["Set-Cookie"]).partition(";")[0]


def cases(host: str, cookie: str) -> str:
    return str(request(host, "GET", "/cases?format=json", Cookie=cookie).read().decode())
