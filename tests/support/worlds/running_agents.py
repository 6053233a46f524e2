"""Agents and sets for tests of experiments: modules that `--agent` can name, written into a folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

AGENTS = '''
import asyncio, os, signal, sys, time

def calculator(operation, a, b):
    return {"result": a + b if operation == "add" else a * b}

def answer(messages, turn):
    """Answers "add 2 3" by a tool call, and counts its calls in a file."""
    with open("calls.txt", "a") as file:
        file.write(messages[-1]["content"] + "\\n")
    operation, a, b = messages[-1]["content"].split()
    found = turn.run_tool(
        "calculator", {"operation": operation, "a": int(a), "b": int(b)}, calculator
    )
    return f"result: {found['result']}"

async def answers_later(messages, turn):
    await asyncio.sleep(0.01)
    return answer(messages, turn)

def wrong(messages, turn):
    turn.run_tool("calculator", {"operation": "add", "a": 0, "b": 0}, calculator)
    return "result: 0"

def echo(messages):
    return " | ".join(f"{one['role']}: {one['content']}" for one in messages)

def says_nothing(messages):
    return None

def answers_twice(messages, turn):
    turn.respond("one")
    return "two"

def returns_garbage(messages):
    return {"answer": 1}

def raises(messages):
    print("garbage on standard output")
    raise LookupError("no such order")

def exits(messages):
    raise SystemExit("enough")

def hangs(messages):
    time.sleep(600)

async def will_not_be_cancelled(messages):
    while True:
        try:
            await asyncio.sleep(600)
        except asyncio.CancelledError:
            pass

def cancels(messages):
    raise asyncio.CancelledError

async def blocks(messages):
    time.sleep(600)

class GivesUp(BaseException):
    pass

async def gives_up(messages):
    raise GivesUp("for good")

class Held:
    """A factory whose product holds up its start or its end, but when it is looked at."""
    made = 0
    async def __aenter__(self):
        Held.made += 1
        await self.hold("start")
        return answer
    async def __aexit__(self, *_):
        await self.hold("end")
    async def hold(self, when):
        if Held.made > 1 and when == self.when:
            await asyncio.sleep(600)

class WillNotStart(Held):
    when = "start"

class WillNotEnd(Held):
    when = "end"

def kills_its_process(messages):
    os.kill(os.getpid(), signal.SIGKILL)

def ends_within_a_message(messages):
    """Die as a process that is killed while it tells the experiment something."""
    os.write(int(sys.argv[2]), b"\\0\\0\\x10\\0of 4096 bytes, a few")
    os.kill(os.getpid(), signal.SIGKILL)

def forks(messages, turn):
    os.fork()
    return answer(messages, turn)

def every_other(fails):
    """Do what `fails` does for additions, and answer the rest."""
    def agent(messages, turn):
        if messages[-1]["content"].startswith("add"):
            return fails(messages)
        return answer(messages, turn)
    return agent

fails_half = {one.__name__: every_other(one) for one in (
    says_nothing, returns_garbage, raises, exits, hangs, kills_its_process, ends_within_a_message, blocks,
    gives_up, cancels)}
globals().update({f"half_{name}": agent for name, agent in fails_half.items()})

def make():
    return answer

class Made:
    """A factory whose product has to be closed."""
    def __enter__(self):
        return answer
    def __exit__(self, *_):
        with open("closed.txt", "a") as file:
            file.write("x")

not_an_agent = 7
'''
METRIC = {
    "metricName": "tool_trajectory_avg_score",
    "threshold": 1,
    "criterion": {"toolTrajectory": {"defaultStrategy": {"name": {}, "arguments": {}}}},
}
ANSWER = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
}


def case(eval_id: str, *said: str, expected: bool = True, **more: Any) -> dict[str, Any]:
    """Return a case in which the user says something, with what the calculator's agent should do."""
    turns = []
    for text in said:
        turn: dict[str, Any] = {"userContent": {"role": "user", "content": text}}
        if expected:
            operation, a, b = text.split()
            result = int(a) + int(b) if operation == "add" else int(a) * int(b)
            turn["finalResponse"] = {"role": "assistant", "content": f"result: {result}"}
            turn["tools"] = [
                {
                    "name": "calculator",
                    "arguments": {"operation": operation, "a": int(a), "b": int(b)},
                }
            ]
        turns.append(turn)
    session = {"appName": "math", "userId": "u"}
    return {"evalId": eval_id, "conversation": turns, "sessionInput": session, **more}


def write_set(folder: Path, cases: Sequence[dict[str, Any]], name: str = "math") -> Path:
    """Write agents, metrics and an eval set; return the path of the set."""
    (folder / "agents.py").write_text(AGENTS)
    (folder / "metrics.json").write_text(json.dumps([METRIC, ANSWER]))
    path = folder / f"{name}.evalset.json"
    path.write_text(json.dumps({"evalSetId": name, "evalCases": list(cases)}))
    return path
