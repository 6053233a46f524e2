"""Agents elsewhere, over the protocol of a turn: what it carries, and what fails."""

import asyncio
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from starlette.testclient import TestClient

from evaltap.evaluator.page.security.site import Site
from evaltap.evaluator.page.serving import PageServer
from evaltap.experiments.agents.base import AgentError
from evaltap.experiments.server.app import ServerStores, create_app
from evaltap.experiments.server.entrance import Entrance
from evaltap.experiments.server.remote import agent_routes
from evaltap.experiments.service import AgentCall, AgentEvaluator, RecordedAgent, RemoteAgent
from evaltap.experiments.stores import memory_stores
from evaltap.schemas.files.validation import parse
from evaltap.schemas.formats.case import EvalSet
from support.builders.served_agents import TOKEN, Slow, conversation


def talking(messages: list[dict[str, str]], turn: Any) -> str:
    said = turn.run_tool("count", {"of": messages[-1]["content"]}, lambda of: {"n": len(messages)})
    if "crash" in messages[-1]["content"]:
        raise ValueError("it crashed")
    return f"message {said['n']}"


@pytest.fixture
def remote() -> Iterator[RemoteAgent]:
    agent = RecordedAgent(talking)
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = create_app(
        AgentEvaluator("app", agent),
        ServerStores(),
        Entrance(Site("127.0.0.1", port), TOKEN),
        more=lambda _: agent_routes("app", agent),
    )
    server = PageServer(app, listener)
    server.start()
    yield RemoteAgent(f"http://127.0.0.1:{port}", "app", token=TOKEN)
    server.stop()
    agent.close()


def test_a_remote_agent_gives_the_turns_that_it_gives_here(remote: RemoteAgent) -> None:
    here = RecordedAgent(talking)
    cases = [conversation("a", "b", "c"), conversation("x", "crash"), conversation("y")]
    found = []
    for agent in (here, remote):
        stores = memory_stores()
        data = {"evalSetId": "s", "evalCases": cases}
        stores.sets.put("app", parse(EvalSet, data))
        evaluator = AgentEvaluator("app", agent, stores=stores, run_details=True)
        found.append([one.run_details[0].inference for one in evaluator.evaluate("s").eval_cases])
    here.close()

    def seen(inference: dict[str, Any]) -> Any:
        tools = [[(t["name"], t["arguments"], t["result"]) for t in turn["tools"]]
                 for turn in inference["inferences"]]  # fmt: skip
        said = [turn["finalResponse"]["content"] for turn in inference["inferences"]]
        return said, tools, inference["status"], "it crashed" in inference["errorMessage"]

    local, distant = ([seen(one) for one in run] for run in found)
    assert local == distant, found[1][1]["errorMessage"]
    assert distant[0][0] == ["message 1", "message 3", "message 5"]
    assert distant[1][2:] == ("failed", True)


def test_the_token_of_a_remote_agent_does_not_follow_a_redirect() -> None:
    asked: list[str] = []

    class Elsewhere(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.send_response(302)
            self.send_header("Location", f"http://{self.headers['Host']}/elsewhere")
            self.end_headers()

        def do_GET(self) -> None:
            asked.append(f"{self.path} {self.headers['Authorization']}")
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            pass

    with HTTPServer(("127.0.0.1", 0), Elsewhere) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        remote = RemoteAgent(f"http://127.0.0.1:{server.server_port}", "app", token=TOKEN)
        call = AgentCall("u", "s", {"content": "hello"})
        with pytest.raises(AgentError, match="answered with status 302"):
            asyncio.run(remote(call))
        server.shutdown()

    assert asked == ["/trpc-agent/v1/apps/app/runs"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contextMessages": [{"role": "system", "content": "x"}]}, "context messages"),
        ({"toolMock": {"actual": [{"name": "count", "result": 1}]}}, "cannot be mocked"),
    ],
)
def test_what_the_protocol_cannot_carry_fails_the_case(
    remote: RemoteAgent, change: dict[str, Any], said: str
) -> None:
    case = conversation("a")
    where = case["conversation"][0] if "toolMock" in change else case
    where.update(change)
    stores = memory_stores()
    stores.sets.put("app", parse(EvalSet, {"evalSetId": "s", "evalCases": [case]}))

    [found] = AgentEvaluator("app", remote, stores=stores).evaluate("s").eval_cases
    assert found.overall_status == "failed"
    assert said in found.eval_case_results[0].error_message


TURN_REQUEST = {
    "session": {"userId": "u", "sessionId": "s"},
    "input": {"role": "user", "content": "hi"},
    "runOptions": {"requestID": "r-1", "executionTraceEnabled": True},
}


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({}, 200),
        ({"session": {"userId": "", "sessionId": "s"}}, 400),
        ({"session": {"userId": "u"}}, 400),
        ({"input": {"role": "assistant", "content": "x"}}, 400),
        ({"input": {"role": "user", "content": ""}}, 400),
        ({"input": None}, 400),
        ({"profile": {"overrides": [{}]}}, 400),
        ({"colour": 1}, 400),
        ({"runOptions": {"colour": 1}}, 400),
    ],
)
def test_a_turn_of_the_agent_itself(change: dict[str, Any], status: int) -> None:
    agent = RecordedAgent(talking)
    entrance = Entrance(Site("127.0.0.1", 8080))
    evaluator = AgentEvaluator("app", agent)
    app = create_app(evaluator, ServerStores(), entrance, more=lambda _: agent_routes("app", agent))
    with TestClient(app, "http://127.0.0.1:8080") as client:
        path = "/trpc-agent/v1/apps/app/runs"
        found = client.post(path, json={**TURN_REQUEST, **change})
        other = client.post(path.replace("/app/", "/other/"), json=TURN_REQUEST)
        stranger = {**TURN_REQUEST, "session": {"userId": "v", "sessionId": "s"}}
        refused = client.post(path, json=stranger).status_code if status == 200 else 400
    agent.close()

    assert (found.status_code, other.status_code, refused) == (status, 404, 400), found.text
    if status == 200:
        data = found.json()
        assert data["status"] == "completed"
        assert {one["requestID"] for one in data["events"]} == {"r-1"}
        assert data["events"][-1]["object"] == "runner.completion"
        assert [one["role"] for one in data["messages"]] == [
            "user",
            "assistant",
            "tool",
            "assistant",
        ]


def test_a_turn_without_a_final_response_keeps_the_results_of_its_tools() -> None:
    def agent(call: AgentCall) -> dict[str, Any]:
        return {"tools": [{"id": "t", "name": "count", "arguments": {}, "result": 1}]}

    app = create_app(
        AgentEvaluator("app", agent),
        ServerStores(),
        Entrance(Site("127.0.0.1", 8080)),
        more=lambda _: agent_routes("app", agent),
    )
    with TestClient(app, "http://127.0.0.1:8080") as client:
        found = client.post("/trpc-agent/v1/apps/app/runs", json=TURN_REQUEST).json()

    assert found["status"] == "completed", found
    assert [one["role"] for one in found["messages"]] == ["user", "assistant", "tool"]


def test_a_remote_turn_that_hangs_fails_in_time() -> None:
    agent = Slow(first=0)
    app = create_app(
        AgentEvaluator("app", agent),
        ServerStores(),
        Entrance(Site("127.0.0.1", 8080)),
        more=lambda _: agent_routes("app", agent, 0.05),
    )
    with TestClient(app, "http://127.0.0.1:8080") as client:
        found = client.post("/trpc-agent/v1/apps/app/runs", json=TURN_REQUEST).json()

    assert found["status"] == "failed"
    assert "no answer within 0.05 s" in found["errorMessage"]
    assert agent.cancelled.wait(10)
