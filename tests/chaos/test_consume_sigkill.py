"""SIGKILL of `evaltap consume` at random moments: every turn is landed and scored exactly once.

The checker below reads the log and the DuckDB file with their own libraries and imports nothing of the
product.  `EVALTAP_TEST_KILLS` sets the number of kills (default 25).
"""

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import duckdb
import orjson
import pytest

from cases import RESPONSE, TRAJECTORY, make_case, make_records, make_tool, make_turn, write_log

KILLS = int(os.environ.get("EVALTAP_TEST_KILLS", "25"))
SESSIONS, TURNS = 1_000, 3


def write_input(folder: Path) -> None:
    """Write 3,000 turns, interleaved over sessions; in every third session one turn is wrong."""
    cases = []
    for turn in range(TURNS):
        for session in range(SESSIONS):
            actual = make_turn(f"t-{turn}", answer=f"answer {session}")
            wrong = session % 3 == 0 and turn == 1
            expected = (
                actual | {"tools": [make_tool(arguments={"order_id": "other"})]}
                if wrong
                else actual
            )
            cases.append(make_case(f"s-{session}", [actual], conversation=[expected]))
    write_log(folder / "log.db", make_records(cases))
    (folder / "metrics.json").write_bytes(orjson.dumps([TRAJECTORY, RESPONSE]))


def start(folder: Path) -> "subprocess.Popen[bytes]":
    program = "import sys; from evaltap.evaluator.cli import main; sys.exit(main())"
    arguments = (
        "consume",
        "--log",
        "log.db",
        "--db",
        "x.duckdb",
        "--metrics",
        "metrics.json",
        "--until-idle",
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, *arguments],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def check(folder: Path) -> list[str]:
    """Return what is wrong in the store: lost, duplicated or wrongly scored."""
    log = sqlite3.connect(folder / "log.db")
    (records,) = log.execute("SELECT count(*) FROM records").fetchone()
    log.close()
    store = duckdb.connect(str(folder / "x.duckdb"), read_only=True)

    def number(query: str) -> int:
        (found,) = store.execute(query).fetchone() or (-1,)
        return int(found)

    expected = {
        "turns": (number("SELECT count(*) FROM turns"), records),
        "distinct turns": (
            number("SELECT count(DISTINCT (eval_id, invocation_id)) FROM turns"),
            records,
        ),
        "turn scores": (number("SELECT count(*) FROM turn_scores"), 2 * records),
        "distinct turn scores": (
            number("SELECT count(DISTINCT (eval_id, invocation_id, metric_name)) FROM turn_scores"),
            2 * records,
        ),
        "duplicate case scores": (
            number(
                "SELECT count(*) - count(DISTINCT (eval_id, revision, metric_name)) FROM scores"
            ),
            0,
        ),
        "latest case scores": (
            number("SELECT count(*) FROM latest_scores WHERE revision = 3"),
            2 * SESSIONS,
        ),
        "failed turns": (
            number("SELECT count(*) FROM turn_scores WHERE status = 'failed'"),
            len(range(0, SESSIONS, 3)),
        ),
        "failed cases": (
            number("SELECT count(*) FROM latest_scores WHERE status = 'failed'"),
            len(range(0, SESSIONS, 3)),
        ),
    }
    store.close()
    return [
        f"{name}: {found}, want {want}" for name, (found, want) in expected.items() if found != want
    ]


def undisturbed(folder: Path) -> float:
    """Return the seconds that one run takes from the first to the last row."""
    began = time.monotonic()
    process = start(folder)
    process.communicate()
    return time.monotonic() - began


@pytest.mark.chaos
@pytest.mark.timeout(1200)
def test_every_turn_is_scored_exactly_once_whenever_the_consumer_is_killed(tmp_path: Path) -> None:
    rng = random.Random(7)
    (tmp_path / "whole").mkdir()
    write_input(tmp_path / "whole")
    seconds = undisturbed(tmp_path / "whole")
    assert check(tmp_path / "whole") == []
    kills = logs = 0
    while kills < KILLS:
        # A log may be consumed before the first kill comes.
        logs += 1
        folder = tmp_path / f"log-{logs}"
        folder.mkdir()
        write_input(folder)
        while True:
            process = start(folder)
            try:
                process.communicate(timeout=rng.uniform(0.2, seconds * 1.2))
                break
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGKILL)
                process.communicate()
                kills += 1
        assert process.returncode == 1, "the run must end with the verdict on the failing cases"
        assert check(folder) == []


@pytest.mark.chaos
@pytest.mark.parametrize(
    "damage",
    [
        "INSERT INTO turn_scores SELECT * FROM turn_scores LIMIT 1",
        "DELETE FROM turn_scores WHERE eval_id = 's-5'",
        "DELETE FROM turns WHERE eval_id = 's-5'",
        "INSERT INTO scores SELECT * FROM scores LIMIT 1",
        "UPDATE turn_scores SET status = 'passed' WHERE eval_id = 's-3'",
    ],
)
def test_the_checker_sees_planted_damage(tmp_path: Path, damage: str) -> None:
    write_input(tmp_path)
    undisturbed(tmp_path)
    store = duckdb.connect(str(tmp_path / "x.duckdb"))
    store.execute(damage)
    store.close()

    assert check(tmp_path) != []
