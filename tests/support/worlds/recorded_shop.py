"""A shop whose recorded sessions are replayed: a set with results of tools, and agents that call them."""

import json
from pathlib import Path
from typing import Any

AGENTS = '''
"""Agents of a shop; every real tool writes to real.txt."""

from concurrent.futures import ThreadPoolExecutor

from evaltap.recorder import tool


def real(*_, **__):
    with open("real.txt", "a") as file:
        file.write("x")
    return {"status": "real"}


def answer(messages, turn):
    user = messages[-1]["content"]
    order = turn.run_tool("get_order", {"id": user.split()[-1], "mail": "user-5345e9@example.com"}, real)
    if order["status"] == "lost":
        try:
            turn.run_tool("refund", {"id": user.split()[-1]}, real)
        except TimeoutError:
            return "The refund timed out."
    return f"It is {order['status']}."


def renamed(messages, turn):
    order = turn.run_tool("fetch_order", {"id": messages[-1]["content"].split()[-1]}, real)
    return f"It is {order['status']}."


def in_threads(messages, turn):
    """Look up the order on a thread without the context of the run."""
    given = {"id": messages[-1]["content"].split()[-1], "mail": "user-5345e9@example.com"}
    with ThreadPoolExecutor() as threads:
        order = threads.submit(turn.run_tool, "get_order", given, real).result()
    return f"It is {order['status']}."


@tool
def get_order(id, mail):
    return real()


def strays(messages):
    """Do the same with a decorated tool, and swallow what becomes of it."""
    with ThreadPoolExecutor() as threads:
        threads.submit(get_order, "A-1", "").exception()
    return "It is shipped."


def swallows(messages, turn):
    try:
        turn.run_tool("delete_everything", {}, real)
    except BaseException:
        pass
    return "done"


def broken(messages, turn):
    raise LookupError("broken")
'''


def call(name: str, arguments: Any, result: Any = None, **more: Any) -> dict[str, Any]:
    """Return a recorded call."""
    return {"id": "1", "name": name, "arguments": arguments, "result": result, **more}


def recorded(eval_id: str, *turns: tuple[str, list[dict[str, Any]], str]) -> dict[str, Any]:
    """Return a case from production: what the user said, the calls, the answer."""
    return {
        "evalId": eval_id,
        "evalMode": "trace",
        "actualConversation": [
            {
                "invocationId": str(number),
                "userContent": {"role": "user", "content": said},
                "tools": tools,
                "finalResponse": {"role": "assistant", "content": answer},
            }
            for number, (said, tools, answer) in enumerate(turns, 1)
        ],
        "sessionInput": {"appName": "shop"},
        "source": {"curation": {"recipe": "representative"}},
    }


def order(id: str, status: str) -> dict[str, Any]:
    """Return the recorded look-up of an order."""
    return call("get_order", {"id": id, "mail": "<email:5345e9>"}, {"status": status})


def write_shop(folder: Path, cases: list[dict[str, Any]] | None = None) -> None:
    """Write the agents, the set and metrics."""
    (folder / "shop.py").write_text(AGENTS)
    timed_out = {"type": "TimeoutError", "message": "no answer"}
    cases = cases or [
        recorded("shipped", ("where is A-1", [order("A-1", "shipped")], "It is shipped.")),
        recorded(
            "lost",
            (
                "where is A-2",
                [order("A-2", "lost"), call("refund", {"id": "A-2"}, error=timed_out)],
                "The refund timed out.",
            ),
        ),
    ]
    data = {"evalSetId": "shop", "name": "shop", "evalCases": cases}
    (folder / "shop.evalset.json").write_text(json.dumps(data))
    metrics = [
        {"metricName": "trajectory_exact", "threshold": 1},
        {"metricName": "run_succeeded", "threshold": 1},
    ]
    (folder / "metrics.json").write_text(json.dumps(metrics))
