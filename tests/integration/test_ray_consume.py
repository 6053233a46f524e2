"""`consume --engine ray` on a real cluster: the rows of one process, whoever dies meanwhile.

`EVALTAP_TEST_KILLS` sets how often the consumer is killed (default 2; the chaos suite: 25).
"""

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import orjson
import pytest

from chaos.consumption import look, write_input
from evaltap.cli.main import main
from support.builders.cases import (
    RESPONSE,
    RUBRIC,
    TRAJECTORY,
    make_case,
    make_records,
    make_turn,
    write_log,
)
from support.servers.judge_server import Answer, judge_server
from support.servers.ray_nodes import Nodes, nodes

KILLS = int(os.environ.get("EVALTAP_TEST_KILLS", "2"))
TABLES = ("scores", "turn_scores", "rubric_votes")
PROGRAM = "import sys; from evaltap.cli.main import main; sys.exit(main())"
SLOWLY = """
import time
def slowly(actual, expected):
    time.sleep(0.02)
    with open(__file__ + ".calls", "ab") as calls:
        calls.write(b"x")
    return actual.final_text is not None
"""
DEADLY = """
import os
def deadly(actual, expected):
    if "kill" in actual.final_text:
        os._exit(9)
    return True
"""
OWNER_ONLY = """
import os
if "OWNER" not in os.environ:  # as if the node did not have the module
    raise ImportError("no module of this name")
def slowly(actual, expected):
    return True
"""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(280)]


@pytest.fixture(scope="module")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the nodes of `cluster` find modules."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="module")
def cluster(modules: Path) -> Iterator[Nodes]:
    """Two nodes for all tests that kill none of them."""
    with nodes(2, path=str(modules)) as found:
        yield found


def function(path: str) -> dict[str, Any]:
    return {
        "metricName": path.partition(":")[2],
        "evaluatorName": "python_function",
        "threshold": 0.5,
        "criterion": {"function": {"path": path}},
    }


def start(folder: Path, name: str, *arguments: str, url: str = "") -> "subprocess.Popen[str]":
    environ = {key: value for key, value in os.environ.items() if "EVALTAP" not in key}
    environ |= {"PYTHONPATH": str(folder), "EVALTAP_JUDGE_CACHE": "off", "OWNER": "1"}
    environ["EVALTAP_ALLOW_CODE"] = "1"
    if url:
        environ |= {"EVALTAP_JUDGE_BASE_URL": url, "EVALTAP_JUDGE_MODEL": "m"}
    return subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "consume", "--log", "log.db", "--db", f"{name}.duckdb",
         "--metrics", "metrics.json", "--until-idle", *arguments],
        cwd=folder, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def consume(folder: Path, name: str, *arguments: str, url: str = "") -> tuple[int, str]:
    process = start(folder, name, *arguments, url=url)
    _, said = process.communicate(timeout=200)
    assert "Traceback" not in said, said
    return process.returncode, said


def write_cases(folder: Path, answers: list[str], *metrics: dict[str, Any]) -> None:
    """Write a session for each answer."""
    made = [
        make_case(f"s-{number}", [make_turn("t", answer=answer)], conversation=[make_turn("t")])
        for number, answer in enumerate(answers)
    ]
    write_log(folder / "log.db", make_records(made))
    (folder / "metrics.json").write_bytes(orjson.dumps(list(metrics)))


def rows(path: Path) -> list[tuple[Any, ...]]:
    with duckdb.connect(str(path), read_only=True) as connection:
        return [
            row
            for table in TABLES
            for row in connection.execute(
                "SELECT COLUMNS(lambda c: c NOT IN ('score_id', 'run_id', 'scored_at'))"
                f" FROM {table} ORDER BY ALL"
            ).fetchall()
        ]


def count(path: Path, query: str) -> Any:
    with duckdb.connect(str(path), read_only=True) as connection:
        return connection.execute(query).fetchall()


def verdict(_: dict[str, Any]) -> Answer:
    time.sleep(0.2)
    scores = [{"id": "1", "score": 1, "reason": "it does"}]
    return Answer(orjson.dumps({"rubricScores": scores}).decode())


class Crowd:
    """A judge that answers no one before `size` have asked, and knows how many ever waited at once."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._waiting = 0
        self._changed = threading.Condition()
        self.most = 0

    def wait(self) -> None:
        """Wait until `size` have asked at once."""
        with self._changed:
            assert self._changed.wait_for(lambda: self.most >= self._size, timeout=120), self.most

    def verdict(self, asked: dict[str, Any]) -> Answer:
        with self._changed:
            self._waiting += 1
            self.most = max(self.most, self._waiting)
            self._changed.notify_all()
            self._changed.wait_for(lambda: self.most >= self._size, timeout=60)
        answer = verdict(asked)
        with self._changed:
            self._waiting -= 1
        return answer


def test_a_node_that_dies_costs_no_row_and_doubles_none(tmp_path: Path) -> None:
    write_cases(tmp_path, [f"answer {n}" for n in range(150)], TRAJECTORY, RESPONSE, RUBRIC)

    judge = Crowd(8)
    with judge_server(judge.verdict) as server, nodes(2) as cluster:
        on_ray = start(
            tmp_path, "ray", "--engine", "ray", "--ray-address", cluster.address,
            "--concurrency", "4", url=server.url,
        )  # fmt: skip
        judge.wait()  # both nodes are at work
        cluster.kill_one()
        assert on_ray.poll() is None, "killed too late to tell anything"
        _, said = on_ray.communicate(timeout=200)
        code, _ = consume(tmp_path, "here", "--concurrency", "16", url=server.url)

    assert on_ray.returncode == code, said
    assert "a worker died" in said
    assert rows(tmp_path / "ray.duckdb") == rows(tmp_path / "here.duckdb")
    assert count(
        tmp_path / "ray.duckdb", "SELECT count(*), count(DISTINCT score_id) FROM scores"
    ) == [(450, 450)]


def test_a_second_node_asks_the_judge_twice_as_much_at_once(cluster: Nodes, tmp_path: Path) -> None:
    write_cases(tmp_path, [f"answer {n}" for n in range(80)], RUBRIC)

    def asked_at_once(nodes: Nodes, number: int) -> int:
        judge = Crowd(4 * number)
        with judge_server(judge.verdict) as server:
            consume(
                tmp_path, f"nodes-{number}", "--engine", "ray", "--ray-address", nodes.address,
                "--concurrency", "4", url=server.url,
            )  # fmt: skip
        return judge.most

    with nodes(1) as alone:
        assert asked_at_once(alone, 1) == 4
    assert asked_at_once(cluster, 2) == 8

    assert rows(tmp_path / "nodes-1.duckdb") == rows(tmp_path / "nodes-2.duckdb")


def test_a_case_that_kills_its_worker_is_an_error_after_three_tries(
    cluster: Nodes, modules: Path, tmp_path: Path
) -> None:
    for place in (modules, tmp_path):
        (place / "deadly.py").write_text(DEADLY)
    answers = ["done, kill" if number == 17 else f"done {number}" for number in range(60)]
    write_cases(tmp_path, answers, RESPONSE, function("deadly:deadly"))

    code, said = consume(tmp_path, "x", "--engine", "ray", "--ray-address", cluster.address)

    assert code == 3
    assert said.count("a worker died") == 3
    errors = "SELECT DISTINCT eval_id, reason FROM scores WHERE status = 'error'"
    ((eval_id, reason),) = count(tmp_path / "x.duckdb", errors)
    assert eval_id == "s-17"
    assert "died 2 times while scoring only this case" in reason
    scored = "SELECT count(*), count(DISTINCT (eval_id, metric_name)) FROM scores"
    assert count(tmp_path / "x.duckdb", scored) == [(120, 120)]


def test_a_budget_is_kept_by_all_workers_together(cluster: Nodes, tmp_path: Path) -> None:
    write_cases(tmp_path, [f"answer {n}" for n in range(60)], RUBRIC)

    with judge_server(verdict) as server:
        code, said = consume(
            tmp_path, "x", "--engine", "ray", "--ray-address", cluster.address,
            "--budget-calls", "25", url=server.url,
        )  # fmt: skip

    assert code == 3
    assert len(server.requests) == 25
    assert "the judge budget is spent" in said
    assert "25 calls" in said
    statuses = "SELECT status, count(*) FROM scores GROUP BY ALL ORDER BY ALL"
    assert count(tmp_path / "x.duckdb", statuses) == [("not_evaluated", 35), ("passed", 25)]


def test_limits_of_a_judge_are_divided_among_the_workers(cluster: Nodes, tmp_path: Path) -> None:
    write_cases(tmp_path, [f"answer {n}" for n in range(40)], RUBRIC)
    at_a_time, most = [0], [0]
    lock, both_ask = threading.Lock(), threading.Event()

    def counting(body: dict[str, Any]) -> Answer:
        with lock:
            at_a_time[0] += 1
            most[0] = max(most[0], at_a_time[0])
        if most[0] > 2:
            both_ask.set()
        both_ask.wait(20)  # until the second worker has started, too
        try:
            return verdict(body)
        finally:
            with lock:
                at_a_time[0] -= 1

    with judge_server(counting) as server:
        code, _ = consume(
            tmp_path, "x", "--engine", "ray", "--ray-address", cluster.address,
            "--judge-concurrency", "4", url=server.url,
        )  # fmt: skip

    assert code == 0
    assert 2 < most[0] <= 4


def test_a_metric_that_no_worker_can_build_is_told_at_once(cluster: Nodes, tmp_path: Path) -> None:
    (tmp_path / "owner_only.py").write_text(OWNER_ONLY)
    write_cases(tmp_path, ["one"], function("owner_only:slowly"))

    code, said = consume(tmp_path, "x", "--engine", "ray", "--ray-address", cluster.address)

    assert code == 2
    assert "owner_only" in said


def are_made(more: int, calls: Path, process: "subprocess.Popen[str]") -> bool:
    """Return whether so many more calls are made before the process ends."""
    until = calls.stat().st_size + more
    while process.poll() is None:
        if calls.stat().st_size >= until:
            return True
        time.sleep(0.02)
    return False


@pytest.mark.timeout(3600)
def test_every_turn_is_scored_exactly_once_however_often_the_consumer_is_killed(
    cluster: Nodes, modules: Path, tmp_path: Path
) -> None:
    rng = random.Random(7)
    ray = ("--engine", "ray", "--ray-address", cluster.address)
    kills = logs = 0
    while kills < KILLS:
        logs += 1
        folder = tmp_path / f"log-{logs}"
        folder.mkdir()
        calls = folder / "slowly.py.calls"
        ledger = write_input(folder, 400)
        for place in (modules, folder):  # of the nodes, of the consumer
            (place / "slowly.py").write_text(SLOWLY)
        metrics = [TRAJECTORY, RESPONSE, function("slowly:slowly")]
        (folder / "metrics.json").write_bytes(orjson.dumps(metrics))
        ledger.turns[:] = [
            replace(turn, scores={**turn.scores, "slowly": "passed"}) for turn in ledger.turns
        ]
        consume(folder, "whole", *("--concurrency", "8"))
        while True:
            process = start(folder, "x", *ray)
            if kills < KILLS and are_made(rng.randrange(1, 600), calls, process):
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
                continue
            process.communicate(timeout=200)
            break
        assert process.returncode == 1
        assert look(folder, ledger) == []
        assert rows(folder / "x.duckdb") == rows(folder / "whole.duckdb")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--engine", "ray"], "nothing to score without --metrics"),
        (["--ray-address", "auto"], "--ray-address: only works with --engine ray"),
        (["--ray-workers", "2"], "--ray-workers: only works with --engine ray"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    code = main(["consume", "--log", "log.db", "--db", str(tmp_path / "x.duckdb"), *arguments])

    assert code == 2
    assert said in capsys.readouterr().err


def test_a_cluster_that_is_not_there_is_told(
    tmp_path: Path,
) -> None:
    write_cases(tmp_path, ["one"], RESPONSE)

    code, said = consume(tmp_path, "x", "--engine", "ray", "--ray-address", "127.0.0.1:1")

    assert code == 2
    assert "no Ray cluster at 127.0.0.1:1" in said
