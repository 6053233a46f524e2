"""Traces exported from MLflow are read as cases; created with mlflow-tracing 3.17, openai and langchain."""

import json
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from support.builders.span_builders import TraceBuilder, words

Trace = dict[str, Any]
FILE = Path(__file__).parents[1] / "data/mlflow/traces.json"
PLAIN, CRASHED, SECOND, FIRST, GRAPH = json.loads(FILE.read_text())


def recorded(folder: Path, document: object) -> dict[str, list[dict[str, Any]]]:
    """Return the turns of each session."""
    (folder / "t.json").write_text(json.dumps(document))
    out = folder / "o.evalset.json"
    assert main(["record", "otlp", str(folder / "t.json"), "--out", str(out)]) == 0
    cases = json.loads(out.read_text())["evalCases"]
    return {case["evalId"]: case["actualConversation"] for case in cases}


def as_row(trace: Trace) -> Trace:
    """Return the row of a data frame that a trace is in."""
    spans = trace["data"]["spans"]
    return {"trace_id": trace["info"]["trace_id"], "trace": json.dumps(trace), "spans": spans}


def of_version_2(trace: Trace) -> Trace:
    """Return a trace as MLflow 2 wrote it, with numbered names."""
    spans = [
        {
            "name": f"{one['name']}_1" if place == 2 else one["name"],
            "context": {"span_id": f"0x{place:016x}", "trace_id": "0x12"},
            "parent_id": "0x" + f"{0:016x}" if place else None,
            "start_time": one["start_time_unix_nano"],
            "end_time": one["end_time_unix_nano"],
            "status_code": "OK",
            "status_message": "",
            "attributes": one["attributes"],
            "events": [],
        }
        for place, one in enumerate(trace["data"]["spans"])
    ]
    about = {"request_id": "5ab1", "request_metadata": trace["info"]["trace_metadata"]}
    return {"info": about, "data": {"spans": spans, "request": "", "response": ""}}


@pytest.mark.parametrize(
    "document",
    [FIRST, [FIRST], [as_row(FIRST)], of_version_2(FIRST)],
    ids=["to_json", "list", "data-frame", "version-2"],
)
def test_traces_of_mlflow_are_read(tmp_path: Path, document: object) -> None:
    ((turn,),) = [recorded(tmp_path, document)["s-9"]]

    assert words(turn, "userContent") == "Where is order A-7?"
    assert words(turn, "finalResponse") == "It was shipped yesterday."
    assert turn["contextMessages"] == [{"role": "system", "content": "Be kind."}]
    (tool,) = turn["tools"]
    assert (tool["id"], tool["name"]) == ("call_1", "get_order")
    assert (tool["arguments"], tool["result"]) == ({"order_id": "A-7"}, {"status": "shipped"})
    used = turn["telemetry"]
    assert (used["models"], used["inputTokens"]) == (["gpt-4o-mini-2024"], 130)


def test_the_traces_of_a_session_are_its_turns_in_order(tmp_path: Path) -> None:
    turns = recorded(tmp_path, [SECOND, FIRST])["s-9"]

    assert [words(turn, "userContent") for turn in turns] == ["Where is order A-7?", "And A-8?"]


def test_a_run_that_failed_has_failed(tmp_path: Path) -> None:
    (((turn),),) = recorded(tmp_path, CRASHED).values()

    error = {"type": "ValueError", "message": "no such order"}
    assert turn["telemetry"]["status"] == "error"
    assert (turn["telemetry"]["error"], turn["tools"][0]["error"]) == (error, error)


def test_messages_that_went_in_and_out_of_a_function_are_read(tmp_path: Path) -> None:
    ((turn,),) = recorded(tmp_path, PLAIN).values()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello!")


def test_a_graph_of_langchain_is_one_turn(tmp_path: Path) -> None:
    ((turn,),) = [recorded(tmp_path, GRAPH)["t-1"]]

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == (
        "How many foxes?",
        "Three.",
    )
    (tool,) = turn["tools"]
    assert (tool["id"], tool["name"], tool["arguments"]) == ("c1", "search", {"query": "foxes"})
    assert tool["result"] == '{"hits": 3}'
    assert turn["telemetry"]["inputTokens"] == 22


def test_a_langgraph_thread_is_the_session_of_spans_that_mlflow_exports() -> None:
    trace = TraceBuilder("mlflow.langchain")
    asked = {"messages": [{"role": "user", "content": "Where is order A-7?"}]}
    about = {"mlflow.spanType": '"CHAIN"', "metadata": '{"thread_id": "t-1"}'}
    root = trace.span("desk", None, about | {"mlflow.spanInputs": json.dumps(asked)})
    trace.span("ChatOpenAI", root, about | {"mlflow.spanType": '"CHAT_MODEL"'})

    (case,) = trace.turns()

    assert case["evalId"] == "t-1"
