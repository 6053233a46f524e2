"""`evaltap run` with agents that are no functions: of a framework, a command, an address."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from evaltap.evaluator.store.database import Store
from support.builders.commands import Evaltap
from support.servers.agent_endpoint import JSON, serving

ADK = """
from google.adk.agents import BaseAgent
from google.adk.events.event import Event
from google.genai import types

class Greeter(BaseAgent):
    async def _run_async_impl(self, context):
        name = context.session.state["name"]
        said = types.Content(role="model", parts=[types.Part(text=f"Hello, {name}.")])
        yield Event(author=self.name, invocation_id=context.invocation_id, content=said)

def make():
    return Greeter(name="greeter")

agent = make()
"""
COMMAND = """
import json, sys
for line in sys.stdin:
    print(json.dumps({"answer": f"Hello, {json.loads(line)['state']['name']}."}), flush=True)
"""
METRIC = {
    "metricName": "final_response_avg_score",
    "threshold": 1,
    "criterion": {"finalResponse": {"text": {"matchStrategy": "exact"}}},
}


def greeting(name: str, **session: Any) -> dict[str, Any]:
    turn = {
        "userContent": {"role": "user", "content": "Hi"},
        "finalResponse": {"role": "assistant", "content": f"Hello, {name}."},
    }
    return {"evalId": name, "conversation": [turn], "sessionInput": session}


@pytest.fixture
def evaltap(evaltap: Evaltap) -> Evaltap:
    Path("metrics.json").write_text(json.dumps([METRIC]))
    return evaltap


def run(evaltap: Evaltap, agent: str, *more: str) -> tuple[int, str]:
    code, out, said = evaltap("run", "greetings.evalset.json", "--agent", agent, "--metrics",
                              "metrics.json", "--db", "x.duckdb", *more)  # fmt: skip
    return code, out + said


def write(*cases: dict[str, Any]) -> None:
    data = {"evalSetId": "greetings", "evalCases": cases}
    Path("greetings.evalset.json").write_text(json.dumps(data))


@pytest.mark.slow
@pytest.mark.parametrize("agent", ["greeter:agent", "greeter:make", "command"])
def test_cases_with_and_without_an_app_and_with_state_run(evaltap: Evaltap, agent: str) -> None:
    Path("greeter.py").write_text(ADK)
    Path("agent.py").write_text(COMMAND)
    write(
        greeting("Ann", appName="shop", userId="u-1", state={"name": "Ann"}),
        greeting("Bob", state={"name": "Bob"}),
    )
    if agent == "command":
        agent = f"command:{shlex.join([sys.executable, 'agent.py'])}"

    code, said = run(evaltap, agent, "--runs", "2")

    assert code == 0, said
    assert "100.0% passed (4 of 4 runs" in said
    with Store("x.duckdb") as store:
        landed = store.rows("SELECT DISTINCT app_name, eval_id FROM latest_turns ORDER BY ALL")
    assert landed == [("", "Bob"), ("shop", "Ann")]


@pytest.mark.slow
def test_what_an_agent_cannot_take_is_said_before_it_is_called(evaltap: Evaltap) -> None:
    write(greeting("Ann", state={"name": "Ann"}))

    code, said = run(evaltap, "http://127.0.0.1:9/")

    assert code == 2
    assert "the agent takes no session state, and 1 case has one: Ann" in said


@pytest.mark.slow
def test_an_http_agent_is_asked_by_its_template_and_another_template_is_another_agent(
    evaltap: Evaltap,
) -> None:
    write(greeting("Ann"))
    Path("request.json").write_text('{"question": "{{message}}"}')

    def answer(body: dict[str, Any], _: Any) -> tuple[int, str, str]:
        said = "Hello, Ann." if body["question"] == "Hi" else "?"
        return 200, JSON, json.dumps({"output": {"text": said}})

    with serving(answer) as url:
        options = ["--agent-request", "request.json", "--agent-result", "$.output.text"]
        first = run(evaltap, url, *options)
        Path("request.json").write_text('{"question": "So: {{message}}"}')
        second = run(evaltap, url, *options, "--resume")

    assert first[0] == 0, first[1]
    assert second[0] == 2
    assert "agent was" in second[1]


@pytest.mark.parametrize(
    ("content", "says"), [(None, "No such file"), ("{", "request.json"), ("7", "has neither")]
)
def test_a_template_that_cannot_be_read_is_refused(
    evaltap: Evaltap, content: str | None, says: str
) -> None:
    write(greeting("Ann"))
    if content is not None:
        Path("request.json").write_text(content)

    code, said = run(evaltap, "http://127.0.0.1:9/", "--agent-request", "request.json")

    assert code == 2
    assert says in said


RECORDED = """
from evaltap.recorder import Recorder

production = Recorder("production.db")

def agent(messages):
    with production.turn(session_id="s", user=messages[-1]["content"]) as turn:
        turn.respond("Hello, Ann.")
    production.flush()
    return "Hello, Ann."
"""


@pytest.mark.slow
def test_an_agent_that_records_itself_writes_nothing_to_the_log_of_production(
    evaltap: Evaltap,
) -> None:
    Path("recorded.py").write_text(RECORDED)
    write(greeting("Ann"))

    code, told = run(evaltap, "recorded:agent")

    assert code == 0, told
    assert not Path("production.db").exists()


DIES = """
import os, sys

class Unsaid(Exception):
    def __str__(self):
        return self.args[3]

def agent(messages):
    said = messages[-1]["content"]
    if said == "talks":
        print("of the first", flush=True)
        print("long " * 100, flush=True)
    if said in ("talks", "is silent"):
        os._exit(4)
    if said == "cannot say why":
        raise Unsaid
    return "Hello."
"""


def ends(evaltap: Evaltap, *said: str) -> dict[str, str]:
    """Run an agent one turn after another; return why each ended, by what it was told."""
    Path("dies.py").write_text(DIES)
    turns = [{"userContent": {"role": "user", "content": one}} for one in said]
    write(
        *(
            {**greeting("x"), "evalId": one["userContent"]["content"], "conversation": [one]}
            for one in turns
        )
    )
    metrics = [{"metricName": "run_succeeded", "threshold": 1}]
    Path("metrics.json").write_text(json.dumps(metrics))

    run(evaltap, "dies:agent", "--concurrency", "1")

    with Store("x.duckdb") as store:
        return dict(store.rows("SELECT eval_id, coalesce(reason, state) FROM latest_units"))


@pytest.mark.slow
def test_a_process_that_died_is_quoted_and_not_those_before_it(evaltap: Evaltap) -> None:
    found = ends(evaltap, "talks", "is silent", "answers")

    assert found == {
        "talks": "the agent's process exited with code 4; it printed last: of the first / "
        + ("long " * 40)
        + "…",
        "is silent": "the agent's process exited with code 4",
        "answers": "scored",
    }


@pytest.mark.slow
def test_an_exception_without_a_text_is_named_and_ends_no_other_run(evaltap: Evaltap) -> None:
    assert ends(evaltap, "cannot say why", "answers") == {
        "cannot say why": "Unsaid",
        "answers": "scored",
    }
