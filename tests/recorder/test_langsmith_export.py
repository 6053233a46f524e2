"""Runs as stored by LangSmith, written by its own client, result in the cases of the recorded agent."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
from langchain.agents import create_agent
from langchain_core.messages import HumanMessage
from langchain_core.tools import tool
from langchain_core.tracers import LangChainTracer
from langsmith import Client, tracing_context

from evaltap.cli.main import main
from plugin_drivers.driver import INPUT_TOKENS, Says, call, says
from plugin_drivers.langchain import ScriptedModel
from support.builders.span_builders import intermediate, tools, words

Run = dict[str, Any]
ASKS = says("Let me look.", call("search", "c1", query="foxes"))
ANSWERS = says("Three.")


class StoredRuns(ThreadingHTTPServer):
    """LangSmith's side of the client: keeps what is posted, and what is patched onto it."""

    def __init__(self) -> None:
        self.runs = runs = dict[str, Run]()

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                run = json.loads(self.rfile.read(int(self.headers["content-length"])))
                key = run.get("id") or self.path.rpartition("/")[2]
                runs.setdefault(key, {}).update(run)
                self.send_response(202)
                self.end_headers()

            do_PATCH = do_POST

            def log_message(self, format: str, *arguments: Any) -> None:
                """Write nothing."""

        super().__init__(("127.0.0.1", 0), Handler)


@pytest.fixture
def langsmith() -> Iterator[StoredRuns]:
    with StoredRuns() as server:
        thread = Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@tool
def search(query: str) -> str:
    """Search."""
    if query == "bears":
        raise ValueError("no bears here")
    return f"three {query}"


def runs_of_an_agent(server: StoredRuns, *steps: Says, fails: bool = False) -> list[Run]:
    """Return the runs that LangSmith stores of one turn."""
    url = f"http://127.0.0.1:{server.server_port}"
    client = Client(api_url=url, api_key="none", auto_batch_tracing=False)
    agent = create_agent(ScriptedModel(steps=list(steps)), [search])
    config: Any = {
        "callbacks": [LangChainTracer(client=client)],
        "metadata": {"thread_id": "thread-1", "user_id": "u-1"},
    }
    with tracing_context(enabled=True):
        try:
            agent.invoke({"messages": [HumanMessage("Foxes?")]}, config)
        except ValueError:
            assert fails
    client.cleanup()
    return list(server.runs.values())


def cases_of(path: Path) -> list[dict[str, Any]]:
    out = path.with_name("out.evalset.json")
    assert main(["record", "otlp", str(path), "--out", str(out)]) == 0
    return list(json.loads(out.read_text())["evalCases"])


@pytest.mark.parametrize("form", ["array", "lines", "response"])
def test_runs_are_read_as_the_turn_that_they_trace(
    form: str, langsmith: StoredRuns, tmp_path: Path
) -> None:
    runs = runs_of_an_agent(langsmith, ASKS, ANSWERS)
    path = tmp_path / "runs.json"
    lines = "\n".join(map(json.dumps, runs))
    documents = {"array": runs, "response": {"runs": runs, "cursors": {}}}
    path.write_text(lines if form == "lines" else json.dumps(documents[form]))

    (case,) = cases_of(path)

    (turn,) = case["actualConversation"]
    assert case["evalId"] == "thread-1"
    assert case["sessionInput"]["userId"] == "u-1"
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Foxes?", "Three.")
    assert intermediate(turn) == ["Let me look."]
    assert tools(turn) == [("c1", "search", {"query": "foxes"}, "three foxes")]
    assert turn["telemetry"]["inputTokens"] == 2 * INPUT_TOKENS


def test_children_inside_their_parents_are_read_alike(
    langsmith: StoredRuns, tmp_path: Path
) -> None:
    runs = runs_of_an_agent(langsmith, ASKS, ANSWERS)
    nested = {run["id"]: {**run, "child_runs": []} for run in runs}
    for run in nested.values():
        if parent := run.pop("parent_run_id", None):
            nested[parent]["child_runs"].append(run)
    root = next(run for run in nested.values() if "." not in run["dotted_order"])
    path = tmp_path / "run.json"
    path.write_text(json.dumps(root))

    (case,) = cases_of(path)

    assert tools(case["actualConversation"][0]) == [
        ("c1", "search", {"query": "foxes"}, "three foxes")
    ]


def test_a_run_with_an_error_has_failed(langsmith: StoredRuns, tmp_path: Path) -> None:
    asks = says("", call("search", "c1", query="bears"))
    runs = runs_of_an_agent(langsmith, asks, fails=True)
    path = tmp_path / "runs.json"
    path.write_text(json.dumps(runs))

    (case,) = cases_of(path)

    (turn,) = case["actualConversation"]
    assert turn["telemetry"]["status"] == "error"
    assert "no bears here" in json.dumps(turn["telemetry"])
    assert "finalResponse" not in turn
