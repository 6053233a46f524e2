"""A shop's recorded sessions, replayed twice with a changed agent: some fork, break or get better."""

import json
from contextlib import chdir
from pathlib import Path
from typing import Any, Final

from evaltap.cli.main import main
from evaltap.recorder import Recorder, Turn

CANARY: Final = "kingfisher"
"""A word that only messages, arguments and answers contain."""
SESSIONS: Final = {
    "s-same": ["where is A-1", "thanks <script>alert(1)</script>"],
    "s-worse": ["where is B-2"],
    "s-better": ["where is C-3"],
    "s-fork": ["where is A-4", f"refund D-5 {CANARY}", "thanks"],
    "s-skip": ["refund E-6", "thanks"],
    "s-extra": ["where is F-7"],
    "s-crash": ["where is G-8"],
}
AGENTS: Final = '''
"""The changed agent; no tool may run."""

asked = {}


def tool(**given):
    raise AssertionError("a real tool ran")


def new(messages, turn):
    user = messages[-1]["content"]
    asked[user] = run = asked.get(user, 0) + 1
    if user.startswith("thanks"):
        return "You are welcome."
    order = user.split()[1 if user.startswith("refund") else -1]
    if order == "E-6":
        return "Ask later."
    if order == "F-7" and run == 2:
        turn.run_tool("search", {"text": "F-7"}, tool)
    status = turn.run_tool("get_order", {"id": order}, tool)["status"]
    if order == "G-8":
        raise ValueError("no such order")
    if status == "lost":
        given = {"id": order, "amount": 11 if order == "D-5" else 10, "note": user}
        turn.run_tool("refund", given, tool)
        return "Refunded."
    return f"It is {status}" + ("" if order == "B-2" else ".")
'''
METRICS: Final = [
    {"metricName": "run_succeeded", "threshold": 1},
    {
        "metricName": "ends_with_stop",
        "evaluatorName": "rule_avg_score",
        "threshold": 1,
        "criterion": {"rules": {"rules": [{"id": "stop", "type": "regex", "value": "\\.$"}]}},
    },
]


def record(log: Path) -> None:
    """Record the sessions with the agent as it was."""
    recorder = Recorder(log=str(log), app_name="shop", version="1.4")
    for session, said in SESSIONS.items():
        for user in said:
            with recorder.turn(session_id=session, user=user) as turn:
                turn.respond(_answer(user, turn))
    recorder.close()


def _answer(user: str, turn: Turn) -> str:
    if user.startswith("thanks"):
        return "You are welcome."
    order = user.split()[1 if user.startswith("refund") else -1]
    lost = user.startswith("refund")
    found = turn.run_tool("get_order", {"id": order}, _order(lost=lost))
    if lost:
        turn.run_tool("refund", {"id": order, "amount": 10, "note": user}, lambda **_: {"ok": True})
        return "Refunded."
    return f"It is {found['status']}" + ("" if order == "C-3" else ".")


def _order(*, lost: bool) -> Any:  # a tool
    return lambda id: {"id": id, "status": "lost" if lost else "shipped"}


def replayed_store(folder: Path) -> Path:
    """Record, score and replay the sessions in a folder; return the store of the new runs.

    The forecast is beside it, as `replay.html`.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with chdir(folder):
        record(folder / "shop.log.db")
        (folder / "agents.py").write_text(AGENTS)
        (folder / "metrics.json").write_text(json.dumps(METRICS))
        _run("consume", "--log", "shop.log.db", "--db", "shop.duckdb", "--metrics", "metrics.json",
             "--until-idle", "--json")  # fmt: skip
        replay()
    return folder / "replay.duckdb"


def replay(*more: str) -> int:
    """Replay in the current folder."""
    return _run(
        "replay", "shop.duckdb", "--agent", "agents:new", "--metrics", "metrics.json", "--runs", "2",
        "--concurrency", "1", "--db", "replay.duckdb", "--html", "replay.html", "--json", *more,
    )  # fmt: skip


def _run(*arguments: str) -> int:
    try:
        return main(arguments)
    except SystemExit as exit_:
        return exit_.code if isinstance(exit_.code, int) else 1
