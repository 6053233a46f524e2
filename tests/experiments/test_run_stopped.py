"""Experiments whose agent or process is stopped or killed, and that go on."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from evaltap.evaluator.store.database import Store
from support.builders.waiting import wait_for
from support.worlds.running_agents import case, write_set


def start(folder: Path, *more: str) -> subprocess.Popen[str]:
    program = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    return subprocess.Popen(
        [sys.executable, "-c", program, "run", "math.evalset.json", "--agent", "slow:agent",
         "--metrics", "metrics.json", "--db", "x.duckdb", "--json", *more],
        cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip


def slow_set(folder: Path, cases: int, seconds: float) -> None:
    write_set(folder, [case(f"c{number}", f"add {number} 1") for number in range(cases)])
    (folder / "slow.py").write_text(
        "import time\nfrom agents import answer\n"
        f"def agent(messages, turn):\n    time.sleep({seconds})\n    return answer(messages, turn)\n"
    )


@pytest.mark.slow
def test_an_agent_that_is_being_made_does_not_outlive_a_killed_experiment(tmp_path: Path) -> None:
    write_set(tmp_path, [case("sum", "add 2 3")])
    (tmp_path / "slow.py").write_text(
        "import os, time\nopen('pid.txt', 'w').write(str(os.getpid()))\ntime.sleep(600)\n"
    )
    process = start(tmp_path)
    pid = wait_for(
        lambda: (tmp_path / "pid.txt").read_text() if (tmp_path / "pid.txt").exists() else ""
    )

    process.kill()
    process.communicate()

    wait_for(lambda: not Path(f"/proc/{pid}").exists())


@pytest.mark.slow
def test_ctrl_c_ends_in_order_and_says_how_to_go_on(tmp_path: Path) -> None:
    slow_set(tmp_path, 12, 0.3)
    process = start(tmp_path, "--concurrency", "2")
    wait_for((tmp_path / "calls.txt").exists)

    process.send_signal(signal.SIGINT)
    out, _ = process.communicate(timeout=60)
    found = json.loads(out)

    assert (process.returncode, found["stopped_by"]) == (3, "interrupted")
    assert 0 < found["units"]["scored"] < 12
    again = start(tmp_path, "--concurrency", "8", "--resume")
    assert json.loads(again.communicate(timeout=120)[0])["units"]["scored"] == 12
    assert len((tmp_path / "calls.txt").read_text().splitlines()) == 12, "no call is repeated"


LANDS_LATE = """
import os, signal, time
from agents import answer

def agent(messages, turn):
    if not os.path.exists("calls.txt"):
        os.kill(os.getppid(), signal.SIGSTOP)
    elif messages[-1]["content"] == "add 1 1" and not os.path.exists("killed.txt"):
        open("killed.txt", "x").close()
        time.sleep(1)  # the first turn is on the log, and is not landed
        os.kill(os.getppid(), signal.SIGKILL)
    return answer(messages, turn)
"""


@pytest.mark.slow
def test_what_is_on_the_log_before_anything_has_landed_is_not_lost(tmp_path: Path) -> None:
    slow_set(tmp_path, 3, 0)
    (tmp_path / "slow.py").write_text(LANDS_LATE)
    killed = start(tmp_path, "--concurrency", "1")
    killed.communicate(timeout=120)
    with Store(tmp_path / "x.duckdb") as store:
        landed = store.rows("SELECT count(*) FROM turns")
    again = start(tmp_path, "--concurrency", "1", "--resume")
    found = json.loads(again.communicate(timeout=120)[0])

    assert (killed.returncode, landed) == (-signal.SIGKILL, [(0,)])
    assert found["units"]["scored"] == 3
    said = (tmp_path / "calls.txt").read_text().splitlines()
    assert said.count("add 0 1") == 1, "its turn has landed from the log"


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_killed_at_any_moment_and_resumed_each_unit_is_there_once(tmp_path: Path) -> None:
    cases, runs, concurrency, kills = 60, 5, 8, 10
    slow_set(tmp_path, cases, 0.05)
    options = ("--runs", str(runs), "--concurrency", str(concurrency))
    for number in range(kills):
        process = start(tmp_path, *options, *(["--resume"] if number else []))
        while not number and not (tmp_path / "calls.txt").exists():
            time.sleep(0.05)  # before it has planned, there is nothing to resume
        time.sleep(0.18 * number + (1.2 if number else 0.1))
        os.kill(process.pid, signal.SIGKILL)
        process.communicate()
    process = start(tmp_path, *options, "--resume")
    out, said = process.communicate(timeout=600)

    assert process.returncode == 0, said
    found = json.loads(out)
    assert found["units"]["scored"] == cases * runs
    with Store(tmp_path / "x.duckdb") as store:
        turns = store.rows(
            "SELECT count(*), count(DISTINCT (eval_set_id, eval_id)) FROM latest_turns"
        )
        scores = store.rows(
            "SELECT count(*), count(DISTINCT (eval_set_id, eval_id)) FROM latest_scores"
        )
    assert turns == [(cases * runs, cases * runs)]
    assert scores == [(2 * cases * runs, cases * runs)]
    made = len((tmp_path / "calls.txt").read_text().splitlines())
    assert made <= cases * runs + concurrency * kills
