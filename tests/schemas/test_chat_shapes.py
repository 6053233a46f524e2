"""Forms of chat messages that recorder and data sets read alike."""

from typing import Any

import pytest

from evaltap.schemas.chat.evidence import without_block
from evaltap.schemas.chat.messages import Message, Reasoning, Text
from evaltap.schemas.chat.shapes import read_messages, steps

Outline = tuple[str, str | None, list[Any], list[Any]]
GIVEN = {"id": 7}
LOOK = ("look", GIVEN)


def outline(message: Message) -> Outline:
    """Return a message's role, text, calls, and results with whether they failed."""
    said = [part.content for part in message.parts if isinstance(part, Text)]
    calls = [(call.name, call.arguments and call.arguments.value) for call in message.calls]
    results = [(one.result and one.result.value, one.failed) for one in message.answers]
    return message.role, said[0] if said else None, calls, results


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ({"role": "assistant", "refusal": "No."}, ("assistant", "No.", [], [])),
        (
            {"role": "assistant", "tool_calls": [{"function": {"name": "look", "arguments": ""}}]},
            ("assistant", None, [("look", {})], []),
        ),
        (
            {
                "type": "ai",
                "content": "",
                "tool_calls": [{"name": "look", "args": GIVEN, "id": "c1"}],
                "invalid_tool_calls": [{"name": "look", "args": '{"id": 7', "id": "c2"}],
            },
            ("assistant", None, [LOOK, ("look", None)], []),
        ),
        (
            {"role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]},
            ("assistant", "No.", [], []),
        ),
        (
            {"role": "assistant", "function_call": {"name": "look", "arguments": '{"id": 7}'}},
            ("assistant", None, [LOOK], []),
        ),
        (
            {"role": "user", "content": [{"type": "text", "text": {"value": "Why?"}}]},
            ("user", "Why?", [], []),
        ),
        (
            {
                "role": "assistant",
                "content": [{"tool_call": {"tool_name": "look", "arguments": GIVEN}}],
            },
            ("assistant", None, [LOOK], []),
        ),
        (
            {"role": "tool", "content": [{"tool_call_result": {"result": "no", "error": True}}]},
            ("tool", None, [], [("no", True)]),
        ),
        (
            {
                "role": "tool",
                "content": [
                    {"type": "tool-result", "output": {"type": "json", "value": 1}},
                    {"type": "tool-result", "output": {"type": "error-text", "value": "no"}},
                    {"type": "tool-result", "result": "no", "isError": True},
                ],
            },
            ("tool", None, [], [(1, False), ("no", True), ("no", True)]),
        ),
        ({"role": "tool", "content": "no", "is_error": True}, ("tool", None, [], [("no", True)])),
        (
            {
                "role": "tool",
                "additional_kwargs": {"tool_call_id": "c"},
                "blocks": [{"block_type": "text", "text": "found"}],
            },
            ("tool", None, [], [("found", False)]),
        ),
        (
            {
                "role": "assistant",
                "blocks": [
                    {"block_type": "tool_call", "tool_name": "look", "tool_kwargs": GIVEN},
                ],
            },
            ("assistant", None, [LOOK], []),
        ),
        ({"from": "gpt", "value": "So."}, ("assistant", "So.", [], [])),
        ({"from": "gpt", "content": "So."}, ("assistant", "So.", [], [])),
        (
            {"from": "function_call", "value": '{"name": "look", "arguments": {"id": 7}}'},
            ("assistant", None, [LOOK], []),
        ),
        ({"from": "observation", "value": "found"}, ("tool", None, [], [("found", False)])),
        ({"role": "user", "message": {"content": "Why?"}}, ("user", "Why?", [], [])),
    ],
    ids=[
        *("OpenAI: refusal", "no arguments", "LangChain: malformed"),
        *("OpenAI: part of refusal", "OpenAI: function", "OpenAI: thread"),
        *("Haystack: call", "Haystack: result", "AI SDK: results", "failed", "LlamaIndex: result"),
        *(
            "LlamaIndex: call",
            "ShareGPT",
            "ShareGPT: content",
            "ShareGPT: call",
            "ShareGPT: result",
        ),
        "Cursor",
    ],
)
def test_messages_of_each_form(message: dict[str, Any], expected: Outline) -> None:
    assert [outline(one) for one in read_messages([message])] == [expected]


@pytest.mark.parametrize(
    ("ending", "result"), [({"output": "ok"}, ("ok", False)), ({"error": "no"}, ("no", True))]
)
def test_a_call_that_openai_executes_has_its_result(
    ending: dict[str, Any], result: tuple[str, bool]
) -> None:
    item = {"type": "mcp_call", "id": "m", "name": "look", "arguments": '{"id": 7}', **ending}

    (message,) = read_messages(item)

    assert outline(message) == ("assistant", None, [LOOK], [result])


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": "Why?", "blocks": [{"type": "section"}]},
        {"role": "user", "content": "Why?", "message": {"content": "x"}},
        {"role": "user", "parts": [{"text": "Why?"}], "value": "x"},
    ],
)
def test_what_looks_like_an_envelope_beside_the_content_is_none(message: dict[str, Any]) -> None:
    assert [outline(one) for one in read_messages([message])] == [("user", "Why?", [], [])]


@pytest.mark.parametrize("call", [
    {"type": "tool-look", "toolCallId": "c", "input": GIVEN, "output": "found"},
    {"toolInvocation": {"toolCallId": "c", "toolName": "look", "args": GIVEN, "result": "found"}},
])  # fmt: skip
def test_a_message_of_the_ai_sdks_interface_is_several_steps(call: dict[str, Any]) -> None:
    parts = [
        {"type": "step-start"},
        {"type": "reasoning", "text": "hm"},
        {"type": "text", "text": "I look."},
        call,
        {"type": "step-start"},
        {"type": "tool-call", "toolCallId": "d", "input": {}, "errorText": "no"},
        {"type": "text", "text": "So."},
    ]

    for given in ({"parts": parts}, {"content": {"format": 2, "parts": parts}}):
        found = read_messages([*steps({"role": "assistant", **given})])

        assert [outline(one) for one in found] == [
            ("assistant", "I look.", [], []),
            ("assistant", None, [LOOK], []),
            ("tool", None, [], [("found", False)]),
            ("assistant", None, [("call", {})], []),
            ("tool", None, [], [("no", True)]),
            ("assistant", "So.", [], []),
        ]
        assert found[0].parts[0] == Reasoning("hm")


def test_a_text_block_is_its_text_and_has_no_random_id() -> None:
    text = {"type": "text", "text": "A", "id": "lc_7"}
    image = {"type": "image", "url": "u", "id": "i-1"}

    assert without_block([text]) == "A"
    assert without_block([text, image]) == [{"type": "text", "text": "A"}, image]
    assert without_block([image]) == [image]
