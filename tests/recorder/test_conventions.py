"""Rules for all conventions: no attribute value causes an error, and fields merge by authority."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evaltap.recorder.conventions import DIALECTS, framework_of, is_read, read_span
from evaltap.recorder.conventions.messages import (
    closing_text,
    decode_messages,
    last_user_text,
    read_response,
    without_fragments,
)
from evaltap.recorder.conventions.numbered import gather
from evaltap.recorder.conventions.reading import Reading, failure_of, merge
from evaltap.recorder.observation import Failure
from evaltap.recorder.telemetry.spans import LogRecord, Span, SpanEvent
from evaltap.schemas.chat.evidence import Evidence, decode
from evaltap.schemas.chat.shapes import read_messages
from support.builders.span_builders import cases_of

NAMES = [
    "agent.name",
    "ai.operationId",
    "ai.prompt",
    "ai.prompt.messages",
    "ai.response.toolCalls",
    "ai.toolCall.args",
    "all_messages_events",
    "events",
    "final_result",
    "gcp.vertex.agent.llm_request",
    "gcp.vertex.agent.llm_response",
    "gcp.vertex.agent.tool_call_args",
    "gcp.vertex.agent.tool_response",
    "gen_ai.completion",
    "gen_ai.completion.0.content",
    "gen_ai.completion.0.tool_calls.0.arguments",
    "gen_ai.conversation.id",
    "gen_ai.input.messages",
    "gen_ai.operation.name",
    "gen_ai.output.messages",
    "gen_ai.prompt",
    "gen_ai.prompt.0.content",
    "gen_ai.system",
    "gen_ai.tool.call.arguments",
    "gen_ai.tool.call.id",
    "gen_ai.tool.call.result",
    "gen_ai.tool.name",
    "gen_ai.usage.input_tokens",
    "input.value",
    "langfuse.observation.input",
    "langfuse.observation.type",
    "langfuse.observation.usage_details",
    "langsmith.metadata.usage_metadata",
    "langsmith.span.kind",
    "llm.input_messages.0.message.content",
    "llm.output_messages.1.message.tool_calls.0.tool_call.function.arguments",
    "mcp.method.name",
    "metadata",
    "openinference.span.kind",
    "output.value",
    "pydantic_ai.all_messages",
    "pydantic_ai.new_message_index",
    "tool_arguments",
    "tool_response",
    "traceloop.entity.input",
    "traceloop.entity.output",
    "traceloop.span.kind",
]
WORDS = [
    "AGENT",
    "CHAIN",
    "LLM",
    "TOOL",
    "agent",
    "ai.generateText",
    "ai.generateText.doGenerate",
    "ai.toolCall",
    "chain",
    "chat",
    "execute_tool",
    "generation",
    "invoke_agent",
    "llm",
    "tool",
    "tools/call",
    "trpc.python.agent",
    "workflow",
    '{"messages": [{"role": "user", "content": "hi"}]}',
    '[{"role": "user", "parts": [{"type": "text"}]}]',
    '[{"role": 7, "parts": {"type": "tool_call"}}]',
    '{"messages": [[{"lc": 1, "kwargs": {"content": 3}, "id": null}]]}',
    '[{"toolUse": 5}]',
    '{"args": 1, "kwargs": 2}',
    '{"generations": [[]], "content": {"parts": 5}}',
    '{"output": {"tool_call_id": 5, "content": [{"text": null}]}}',
    "{'a': [1, 2",
    "__REDACTED__",
]
PART_KEYS = [
    "role",
    "parts",
    "content",
    "type",
    "text",
    "tool_calls",
    "function",
    "id",
    "name",
    "function_call",
    "toolUse",
    "toolResult",
    "message",
    "data",
    "lc",
    "kwargs",
]
VALUES = st.recursive(
    st.sampled_from(WORDS) | st.none() | st.booleans() | st.integers() | st.floats(),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(PART_KEYS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
ATTRIBUTES = st.dictionaries(st.sampled_from(NAMES), VALUES, max_size=8)
SCOPES = st.sampled_from(["", "gcp.vertex.agent", "pydantic-ai", "x"])
SPAN_NAMES = st.sampled_from(
    ["chat m", "call_llm", "invocation", "execute_tool x", "claude_code.tool", "agent run", "turn"]
)


@pytest.mark.slow
@settings(max_examples=400)
@given(
    st.lists(st.tuples(SPAN_NAMES, SCOPES, ATTRIBUTES), min_size=1, max_size=4),
    st.sampled_from(["gen_ai.choice", "gen_ai.user.message", "exception", "tool.output"]),
    VALUES,
)
def test_no_attribute_value_upsets_the_reader(
    spans: list[tuple[str, str, dict[str, Any]]], event: str, body: Any
) -> None:
    made = [
        Span(
            "ab" * 16,
            f"{number:016x}",
            name,
            number,
            100 - number,
            parent_id=f"{number - 1:016x}" if number else None,
            attributes=attributes,
            events=(SpanEvent(event, number, attributes),),
            scope=scope,
        )
        for number, (name, scope, attributes) in enumerate(spans)
    ]
    log = LogRecord("ab" * 16, made[0].span_id, 1, event, body)

    for case in cases_of(made, [log]):
        assert case["evalMode"] == "trace"


def test_each_field_comes_from_the_first_reading_that_knows_it() -> None:
    merged = merge(
        [
            Reading("one", kind="tool", call_id="c1"),
            Reading("two", kind="model", tool_name="f", call_id="c2"),
        ]
    )

    assert merged is not None
    assert (merged.convention, merged.kind) == ("one", "tool")
    assert (merged.call_id, merged.tool_name) == ("c1", "f")


def test_the_names_of_the_dialects_are_unique() -> None:
    names = [dialect.name for dialect in DIALECTS]

    assert len(set(names)) == len(names)


def test_a_span_of_no_convention_has_no_reading() -> None:
    assert (
        read_span(Span("ab" * 16, "cd" * 8, "GET /", 1, 2, attributes={"http.route": "/"})) is None
    )


@pytest.mark.parametrize(
    ("scope", "framework"),
    [
        ("gcp.vertex.agent", "google-adk"),
        ("openinference.instrumentation.openai_agents", "openai-agents"),
        ("opentelemetry.instrumentation.langchain", "langchain"),
        ("my.agents", "my.agents"),
        ("", None),
    ],
)
def test_the_framework_is_named_by_the_scope(scope: str, framework: str | None) -> None:
    assert framework_of(scope) == framework


@pytest.mark.parametrize(
    ("raw", "expected"),
    [
        ('{"a": 1}', Evidence({"a": 1})),
        ('"{\\"a\\": 1}"', Evidence({"a": 1})),
        ("{'order_id': 'A-100'}", Evidence({"order_id": "A-100"})),
        ("plain words", Evidence("plain words")),
        (" [link](x) ", Evidence(" [link](x) ")),
        ('{"a": [1, 2', Evidence(None, "truncated")),
        ('[{"role": "user", "con', Evidence(None, "truncated")),
        ("__REDACTED__", Evidence(None, "redacted")),
        ("<elided>", Evidence(None, "redacted")),
        ({"a": 1}, Evidence({"a": 1})),
    ],
)
def test_a_value_is_decoded_or_its_flaw_is_told(raw: Any, expected: Evidence) -> None:
    assert decode(raw) == expected


CALL = {"order_id": "A"}


@pytest.mark.parametrize(
    "message",
    [
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "Let me see."},
                {"type": "tool_call", "id": "c1", "name": "f", "arguments": CALL},
            ],
        },
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "c1", "function": {"name": "f", "arguments": '{"order_id": "A"}'}}
            ],
        },
        {
            "role": "model",
            "parts": [
                {"text": "Let me see."},
                {"text": "a thought", "thought": True},
                {"function_call": {"id": "c1", "name": "f", "args": CALL}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "f", "input": CALL},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"text": "Let me see."},
                {"toolUse": {"toolUseId": "c1", "name": "f", "input": CALL}},
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool-call", "toolCallId": "c1", "toolName": "f", "args": CALL},
            ],
        },
        {
            "type": "ai",
            "data": {
                "type": "ai",
                "content": "Let me see.",
                "tool_calls": [{"id": "c1", "name": "f", "args": CALL}],
            },
        },
        {
            "lc": 1,
            "type": "constructor",
            "id": ["langchain", "schema", "messages", "AIMessage"],
            "kwargs": {
                "content": "Let me see.",
                "tool_calls": [{"id": "c1", "name": "f", "args": CALL}],
            },
        },
        {
            "role": "assistant",
            "content": [
                {"type": "text", "text": "Let me see."},
                {"type": "tool_use", "id": "c1", "name": "f", "input": CALL},
            ],
            "tool_calls": [{"id": "c1", "name": "f", "args": CALL}],
        },
        {
            "role": "assistant",
            "parts": [
                {"type": "text", "content": "Let me see."},
                {
                    "type": "text",
                    "content": 'ResponseFunctionToolCall(arguments=\'{"order_id": "A"}\', '
                    "call_id='c1', name='f', type='function_call', status=None)",
                },
            ],
        },
    ],
    ids=[
        *("genai", "openai", "google", "anthropic", "bedrock", "ai-sdk", "lc", "lc-raw", "lc-both"),
        "repr",
    ],
)
def test_a_message_that_speaks_and_calls_is_read_in_every_shape(message: dict[str, Any]) -> None:
    (read,) = read_messages([message])

    assert read.role == "assistant"
    assert read.text == Evidence("Let me see.")
    assert [(c.call_id, c.name, c.arguments) for c in read.calls] == [("c1", "f", Evidence(CALL))]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "parts": [{"type": "tool_call_response", "id": "c1", "response": "ok"}]},
        {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c1", "result": "ok"}]},
        {"role": "tool", "tool_call_id": "c1", "content": "ok"},
        {"type": "tool", "data": {"type": "tool", "tool_call_id": "c1", "content": "ok"}},
        {"type": "function_call_output", "call_id": "c1", "output": "ok"},
        {
            "role": "user",
            "content": [{"toolResult": {"toolUseId": "c1", "content": [{"text": "ok"}]}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "ok"}],
        },
        {
            "role": "tool",
            "content": [
                {
                    "type": "tool-result",
                    "toolCallId": "c1",
                    "output": {"type": "text", "value": "ok"},
                }
            ],
        },
        {
            "role": "user",
            "parts": [{"function_response": {"id": "c1", "name": "f", "response": "ok"}}],
        },
    ],
)
def test_a_tool_result_is_read_in_every_shape(message: dict[str, Any]) -> None:
    (read,) = read_messages([message])

    assert [(a.call_id, a.result) for a in read.answers] == [("c1", Evidence("ok"))]
    assert read.text is None


_ASKED = '[{"role": "user", "content": "a"}, {"role": "tool", "id": "1", "content": "b"}'


@pytest.mark.parametrize(
    ("first", "next_one"),
    [
        (f"{_ASKED}]", f'{_ASKED}, {{"role": "assistant", "content": "c"}}]'),
        (f"{_ASKED}]", f'{_ASKED} , "said", [{{"type": "text", "text": "c"}}]]'),
        (f"{_ASKED}]", f'{_ASKED}, {{"type": "text", "text": "no role"}}]'),
        (f"{_ASKED}]", f"{_ASKED}]"),
        (f"{_ASKED}]", f"{_ASKED},]"),
        (f"{_ASKED}]", f"{_ASKED}, NaN]"),
        (f"{_ASKED}]", f"{_ASKED}, {'[' * 210}{']' * 210}]"),
        (f"{_ASKED}]", f"{_ASKED}, 5"),
        ("[]", '[,{"role": "user", "content": "a"}]'),
        ("[[1]]", "[[1]"),
        ('[{"type": "text", "text": "a"}]', '[{"type": "text", "text": "a"},{"role": "user"}]'),
        ("[{'role': 'user'}]", "[{'role': 'user'},{\"role\": \"tool\"}]"),
    ],
)
@pytest.mark.parametrize("role", ["user", "assistant"])
def test_a_conversation_that_continues_the_one_read_before_is_read_as_any_other(
    first: str, next_one: str, role: str
) -> None:
    decode_messages("[0]", role=role)  # so that nothing is continued
    alone = decode_messages(next_one, role=role)
    decode_messages("[0]", role=role)
    decode_messages(first, role=role)

    assert decode_messages(next_one, role=role) == alone


def test_the_last_user_message_is_not_a_tool_result() -> None:
    messages = read_messages(
        [
            {"role": "user", "content": "first"},
            {"role": "user", "parts": [{"type": "text", "content": "one"}, {"type": "text"}]},
            {"role": "user", "parts": [{"type": "tool_call_response", "id": "c", "response": 1}]},
        ]
    )

    assert last_user_text(messages) == Evidence("one")


def test_closing_words_are_those_after_the_last_tool_result() -> None:
    call = {"role": "assistant", "parts": [{"type": "tool_call", "id": "c", "name": "f"}]}
    answer = {"role": "tool", "parts": [{"type": "tool_call_response", "id": "c"}]}
    words = {"role": "assistant", "parts": [{"type": "text", "content": "Done."}]}

    assert closing_text(read_messages([words, call, answer, words])) == Evidence("Done.")
    assert closing_text(read_messages([words, call, answer])) is None
    assert closing_text(read_messages([words, call])) is None


def test_of_several_choices_the_first_is_read() -> None:
    said = [{"role": "assistant", "content": text} for text in ("A", "B")]
    choices = [{"index": index, "message": one} for index, one in enumerate(said)]
    split = [{"index": 0, "message": one} for one in said]
    asked = {"gen_ai.operation.name": "chat", "gen_ai.request.choice.count": 2}
    attributes = {**asked, "gen_ai.output.messages": json.dumps(said)}

    reading = read_span(Span("ab" * 16, "cd" * 8, "chat m", 1, 2, attributes=attributes))

    assert reading is not None
    first, *_ = whole = read_messages(said)
    assert reading.output == read_response({"choices": choices}) == (first,)
    assert read_response({"choices": split}) == whole


def test_streamed_pieces_before_the_whole_answer_are_left_out() -> None:
    pieces = read_messages([{"role": "assistant", "content": text} for text in ("It ", "rains")])
    whole = read_messages([{"role": "assistant", "content": "It rains"}])

    assert list(without_fragments([*pieces, *whole])) == list(whole)
    assert list(without_fragments(pieces)) == list(pieces)


def test_numbered_attributes_are_ordered_by_number_and_may_have_gaps() -> None:
    attributes = {f"p.{number}.role": str(number) for number in (10, 1, 2)}

    assert [entry.text("role") for entry in gather(attributes, "p")] == ["1", "2", "10"]


@pytest.mark.parametrize(
    ("span", "failure"),
    [
        ({"status_code": 1}, None),
        ({"status_code": 2, "status_message": "no"}, Failure(None, "no")),
        ({"status_code": 2, "status_message": "ValueError: no"}, Failure("ValueError", "no")),
        (
            {"status_code": 2, "status_message": "RuntimeError('no')Traceback (most recent..."},
            Failure("RuntimeError", "no"),
        ),
        ({"attributes": {"error.type": "timeout"}}, Failure("timeout", None)),
        (
            {"attributes": {"error.type": "TOOL_ERROR"}, "status_message": "TOOL_ERROR"},
            Failure("TOOL_ERROR", None),
        ),
        (
            {
                "events": (
                    SpanEvent(
                        "exception", 1, {"exception.type": "KeyError", "exception.message": "'x'"}
                    ),
                )
            },
            Failure("KeyError", "'x'"),
        ),
    ],
)
def test_a_failure_is_known_by_status_attribute_or_exception(
    span: dict[str, Any], failure: Failure | None
) -> None:
    assert failure_of(Span("ab" * 16, "cd" * 8, "x", 1, 2, **span)) == failure


@pytest.mark.parametrize("mark", sorted({mark for dialect in DIALECTS for mark in dialect.marks}))
def test_a_span_with_the_mark_of_any_dialect_keeps_its_attributes(mark: str) -> None:
    assert is_read("some.scope", "step", [mark])


def test_a_span_without_a_mark_keeps_none() -> None:
    assert not is_read("some.scope", "GET /orders", ["http.request.method", "server.address"])
