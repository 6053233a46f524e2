"""Nothing in the way of a turn, from the recorder to an alert and the report, needs what only Unix has."""

import json
import subprocess
import sys
import time
from pathlib import Path

import pytest

from support.builders.cases import make_case, make_turn
from support.servers.alert_server import alert_server

PROGRAM = Path(__file__).parents[1] / "support" / "programs" / "without_unix.py"
METRICS = """[{"metricName": "done", "evaluatorName": "rule_avg_score", "threshold": 1, "criterion":
  {"rules": {"rules": [{"id": "done", "type": "contains", "values": ["done"]}]}}}]"""
WATCH = {"name": "done", "signal": "pass_rate", "metric": "done", "below": 0.9}


def without_unix(*commands: str) -> str:
    arguments = " -- ".join(commands).split()
    done = subprocess.run(
        [sys.executable, str(PROGRAM), *arguments], capture_output=True, text=True, check=False
    )
    return done.stdout + done.stderr


@pytest.mark.slow
def test_turns_are_recorded_scored_reported_and_watched_without_unix(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    turn = make_turn(answer="no", creationTimestamp=time.time() - 600)
    cases = [make_case(f"s-{number}", [turn]) for number in range(20)]
    Path("cases.jsonl").write_text("".join(f"{json.dumps(one)}\n" for one in cases))
    Path("m.json").write_text(METRICS)

    with alert_server() as server:
        alerts = [{"type": "webhook", "url": server.url}]
        Path("w.json").write_text(json.dumps({"watch": [WATCH], "alerts": alerts}))
        said = without_unix(
            "record cases cases.jsonl --log l.db",
            "consume --log l.db --db c.duckdb --metrics m.json --monitor w.json --until-idle",
            "report c.duckdb --out r.html",
            "monitor alerts c.duckdb",
            "store archive c.duckdb --to archive",
            "doctor",
        )

    assert [line for line in said.splitlines() if line.startswith("exit")] == [
        f"exit code {code}" for code in (0, 1, 1, 1, 0, 0)
    ], said
    assert [one["status"] for one in server.bodies] == ["firing"]


@pytest.mark.slow
def test_what_needs_unix_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a.py").write_text("def make(message):\n    return 'done'\n")
    Path("e.json").write_text(json.dumps({"evalSetId": "e", "evalCases": [make_case("s", [])]}))
    Path("m.json").write_text(METRICS)
    program = {"watch": [WATCH], "alerts": [{"type": "command", "argv": ["page"]}]}
    Path("w.json").write_text(json.dumps(program))

    said = without_unix(
        "run e.json --agent a:make --metrics m.json --db r.duckdb",
        "consume --log l.db --db c.duckdb --metrics m.json --monitor w.json --allow-code",
    )

    assert said.count("POSIX system") == 2, said
    assert said.count("exit code 2") == 2, said
