"""Forms of chat messages in data sets; `tests/schemas/test_chat_shapes.py` has the messages one by one."""

from typing import Any

import pytest

from support.builders.datasets import converted, turns

ITEMS: list[dict[str, Any]] = [
    {"role": "user", "content": [{"type": "input_text", "text": "Why?"}]},
    {"type": "reasoning", "summary": []},
    {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"id": 7}'},
    {"type": "function_call_output", "call_id": "c", "output": "18"},
    {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "So."}]},
]
CONTENTS: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"text": "Why?"}]},
    {"role": "model", "parts": [
        {"text": "hm", "thought": True}, {"functionCall": {"name": "look", "args": {"id": 7}}}]},
    {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": 18}}]},
    {"role": "model", "parts": [{"text": "So."}]},
]  # fmt: skip
TELEMETRY: list[dict[str, Any]] = [
    {"role": "user", "parts": [{"type": "text", "content": "Why?"}]},
    {"role": "assistant", "parts": [
        {"type": "tool_call", "id": "c", "name": "look", "arguments": {"id": 7}}]},
    {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c", "response": "18"}]},
    {"role": "assistant", "parts": [{"type": "text", "content": "So."}]},
]  # fmt: skip
LANGCHAIN: list[dict[str, Any]] = [
    {"type": "human", "data": {"content": "Why?"}},
    {"type": "ai", "data": {"content": [
        {"type": "tool_use", "id": "c", "name": "look", "input": {"id": 7}}],
        "tool_calls": [{"name": "look", "args": {"id": 7}, "id": "c"}]}},
    {"type": "tool", "data": {"content": "18", "tool_call_id": "c"}},
    {"type": "ai", "data": {"content": "So."}},
]  # fmt: skip


@pytest.mark.parametrize(
    "messages",
    [ITEMS, CONTENTS, TELEMETRY, LANGCHAIN],
    ids=["items of OpenAI", "contents of Gemini", "parts of OpenTelemetry", "LangChain"],
)
def test_messages_that_the_recorder_reads_are_read(messages: list[dict[str, Any]]) -> None:
    (turn,) = turns(converted({"messages": messages}))

    (tool,) = turn["tools"]
    assert (tool["name"], tool["arguments"], tool["result"]) == ("look", {"id": 7}, "18")
    assert (turn["userContent"]["content"], turn["finalResponse"]["content"]) == ("Why?", "So.")
    assert not {"capture", "intermediateResponses"} & turn.keys()


def test_what_was_withheld_is_marked() -> None:
    call = {"type": "tool_use", "id": "c", "name": "look", "input": "__REDACTED__"}
    result = {"type": "tool_result", "tool_use_id": "c", "content": "__REDACTED__"}
    messages = [
        {"role": "user", "content": "__REDACTED__"},
        {"role": "assistant", "content": [{"type": "text", "text": "__REDACTED__"}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": "So."},
    ]

    (turn,) = turns(converted({"messages": messages}))

    assert turn["capture"] == {"userContent": "redacted"}
    assert turn["tools"][0]["capture"] == {"arguments": "redacted", "result": "redacted"}
    assert turn["finalResponse"]["content"] == "So."


def test_thoughts_are_no_answer() -> None:
    messages = [
        {"role": "user", "content": "Why?"},
        {"role": "assistant", "content": [
            {"type": "reasoning", "text": "hm"}, {"type": "text", "text": "So."}]},
    ]  # fmt: skip

    (turn,) = turns(converted({"messages": messages}))

    assert (turn["finalResponse"]["content"], "capture" in turn) == ("So.", False)
