"""What `evaltap try` reads of Bedrock, AgentCore and CloudWatch."""

import json
from pathlib import Path

import pytest

from evaltap.cli.recognising import recognise
from support.builders.tried import Line, outline, read, turns

DATA = Path(__file__).parents[1] / "data" / "try"
ASK = {"role": "user", "content": "Why?"}


def test_tokens_of_all_calls_of_a_turn_are_counted(tmp_path: Path) -> None:
    (turn,) = turns(recognise([DATA / "bedrock-invocations.jsonl"]))

    assert turn["telemetry"]["models"] == ["amazon.nova-pro-v1:0"]
    assert (turn["telemetry"]["inputTokens"], turn["telemetry"]["outputTokens"]) == (220, 12)
    assert turn["contextMessages"][0]["content"] == "You are a clerk."


def test_other_calls_in_a_log_of_bedrock_are_told(tmp_path: Path) -> None:
    lines = (DATA / "bedrock-invocations.jsonl").read_text().splitlines()
    embedding = {
        "schemaType": "ModelInvocationLog",
        "input": {"inputBodyJson": {"inputText": "x"}},
        "output": {"outputBodyJson": {"embedding": [0.1]}},
    }

    found = read(tmp_path, [*map(json.loads, lines), embedding])

    assert len(turns(found)) == 1
    assert found.files[0].notes == ["1 model call without messages, as for embeddings"]


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ({"prompt": "Why?"}, {"generation": "So."}),
        ({"inputText": "Why?"}, {"outputText": "So."}),
        ({"message": "Why?"}, {"text": "So."}),
        (
            json.dumps({"messages": [ASK]}),
            json.dumps({"content": [{"type": "text", "text": "So."}]}),
        ),
    ],
    ids=["Llama", "Titan", "Cohere", "JSON text"],
)
def test_models_of_bedrock_that_take_a_text(asked: object, said: object, tmp_path: Path) -> None:
    record = {
        "schemaType": "ModelInvocationLog",
        "input": {"inputBodyJson": asked, "inputTokenCount": 5},
        "output": {"outputBodyJson": said, "outputTokenCount": 2},
    }

    (turn,) = turns(read(tmp_path, [record]))

    assert outline(turn) == ("Why?", [], "So.", "ok")
    assert (turn["telemetry"]["inputTokens"], turn["telemetry"]["outputTokens"]) == (5, 2)


def test_a_streamed_response_in_a_log_of_bedrock_is_put_together(tmp_path: Path) -> None:
    block = {"type": "tool_use", "id": "c", "name": "look", "input": {}}
    chunks: list[Line] = [
        {"type": "message_start", "message": {"usage": {"input_tokens": 5, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *(
            {"type": "content_block_delta", "index": 0, "delta": {"partial_json": piece}}
            for piece in ('{"id": ', "12}")
        ),
        {"type": "message_delta", "delta": {}, "usage": {"output_tokens": 9}},
    ]
    record = {
        "schemaType": "ModelInvocationLog",
        "modelId": "m",
        "input": {"inputBodyJson": {"messages": [ASK]}},
        "output": {"outputBodyJson": chunks},
    }

    (turn,) = turns(read(tmp_path, {"events": [{"message": json.dumps(record)}]}))

    assert [(one["name"], one["arguments"]) for one in turn["tools"]] == [("look", {"id": 12})]
    assert (turn["telemetry"]["inputTokens"], turn["telemetry"]["outputTokens"]) == (5, 9)


def test_records_of_langgraph_on_agentcore_are_a_turn(tmp_path: Path) -> None:
    """OpenLLMetry's records of steps, and those of botocore's calls, some without the event's name."""
    ask = {"name": "look", "args": {"id": 1}, "id": "c"}

    def lc(name: str, **kwargs: object) -> Line:
        return {"lc": 1, "type": "constructor", "id": ["langchain", name], "kwargs": kwargs}

    def step(number: int, asked: Line, said: Line) -> Line:
        body = {
            "input": {"messages": [{"role": "user", "content": json.dumps({"tags": [], **asked})}]},
            "output": {
                "messages": [{"role": "assistant", "content": json.dumps({"kwargs": {}, **said})}]
            },
        }
        return record(number, body)

    def record(number: int, body: object, **more: object) -> Line:
        about: Line = {"scope": {"name": "s"}, "traceId": "ab" * 16, "spanId": f"{number:016x}"}
        return {**about, "timeUnixNano": 1772359200000000000, "body": body, **more}

    human, calls = lc("HumanMessage", content="Why?"), lc("AIMessage", content="", tool_calls=[ask])
    found = lc("ToolMessage", content="found", tool_call_id="c", status="success")
    end = lc("AIMessage", content="So.")
    function = {"name": "look", "arguments": {"id": 1}}
    chat: list[Line] = [
        record(
            3, {"content": [{"text": "Why?"}]}, attributes={"event.name": "gen_ai.user.message"}
        ),
        record(3, {"tool_calls": [{"type": "function", "id": "c", "function": function}]}),
        record(3, {"content": "found", "id": "c"}),
        record(3, {"message": {"content": [{"text": "So."}]}, "finish_reason": "end_turn"}),
    ]
    steps = [
        step(
            1,
            {"inputs": {"messages": [human]}},
            {"outputs": {"messages": [human, calls, found, end]}},
        ),
        step(2, {"input_str": "{'id': 1}", "inputs": {"id": 1}}, {"output": found}),
    ]
    other = record(4, "Attempting to instrument while already instrumented")

    for records in (steps, chat, [other, *steps, *chat]):
        (turn,) = turns(read(tmp_path, records))

        assert outline(turn) == ("Why?", [("look", False)], "So.", "ok")
        assert (turn["tools"][0]["arguments"], turn["tools"][0]["result"]) == ({"id": 1}, "found")
        assert "intermediateResponses" not in turn


def test_rows_of_logs_insights_may_be_lines_of_the_agent(tmp_path: Path) -> None:
    events = json.loads((DATA / "cloudwatch-logs.json").read_text())["events"]
    rows = [
        {"@timestamp": "t", "@message": "INFO: started"},
        *({"@timestamp": "t", "@message": json.loads(one["message"])} for one in events),
    ]
    file = tmp_path / "rows.json"
    file.write_text(json.dumps(rows))

    (turn,) = turns(recognise([file]))

    assert len(turn["tools"]) == 2
