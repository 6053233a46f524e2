"""OpenInference's spans of clients and frameworks that leave something out or write it elsewhere."""

import json
from typing import Any

import pytest

from support.builders.span_builders import TraceBuilder, tools, words

KIND = "openinference.span.kind"
CITY = {"city": "Paris"}


def model(trace: TraceBuilder, parent: str, said: dict[str, Any], **more: Any) -> None:
    """Add a model call with the question, and the result of a call in `told`, flattened."""
    told = more.pop("told", None)
    attributes = {
        KIND: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": "weather?",
        "llm.output_messages.0.message.role": "assistant",
    } | {f"llm.output_messages.0.message.{key}": value for key, value in said.items()}
    if told is not None:
        attributes |= {"llm.input_messages.1.message.role": "assistant"} | {
            f"llm.input_messages.1.message.{key}": value for key, value in ASKS.items()
        }
        attributes |= {f"llm.input_messages.2.message.{key}": told[key] for key in told}
    trace.span("model", parent, attributes | more)


ASKS = {
    "tool_calls.0.tool_call.id": "c1",
    "tool_calls.0.tool_call.function.name": "get_weather",
    "tool_calls.0.tool_call.function.arguments": json.dumps(CITY),
}
ANSWER = {"content": "It is 21."}


@pytest.mark.parametrize(
    ("told", "sent", "failed"),
    [
        (  # LiteLLM
            {"role": "tool", "content": "21C"},
            {"role": "tool", "tool_call_id": "c1", "content": "21C"},
            False,
        ),
        (  # Anthropic
            {"role": "tool", "content": "no station", "tool_call_id": "c1"},
            {
                "role": "user",
                "content": [
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": "no station",
                        "is_error": True,
                    }
                ],
            },
            True,
        ),
    ],
)
def test_the_raw_request_completes_the_results_in_the_messages(
    told: dict[str, Any], sent: dict[str, Any], failed: bool
) -> None:
    trace = TraceBuilder()
    root = trace.span("POST /chat")
    model(trace, root, ASKS)
    request = {"messages": [{"role": "user", "content": "weather?"}, sent]}
    model(trace, root, ANSWER, told=told, **{"input.value": json.dumps(request)})

    turn = trace.turn()

    assert tools(turn) == [("c1", "get_weather", CITY, told["content"])]
    assert ("error" in turn["tools"][0]) is failed


def test_a_raw_request_with_other_results_completes_nothing() -> None:
    trace = TraceBuilder()
    root = trace.span("POST /chat")
    model(trace, root, ASKS)
    request = {"messages": [{"role": "tool", "tool_call_id": f"c{n}"} for n in (1, 2)]}
    told = {"role": "tool", "content": "21C"}
    model(trace, root, ANSWER, told=told, **{"input.value": json.dumps(request)})

    (call,) = trace.turn()["tools"]

    assert call["capture"] == {"result": "missing"}


def test_llamaindex_prepares_a_request_and_wraps_what_tools_return() -> None:
    trace = TraceBuilder("openinference.instrumentation.llama_index")
    event = (
        "StopEvent(result=AgentOutput(response=ChatMessage(role=<MessageRole.ASSISTANT: 'assi..."
    )
    root = trace.span("FunctionAgent.run", None, {KIND: "CHAIN", "output.value": event})
    for said in (ASKS, ANSWER):
        request = json.dumps({"messages": ["ChatMessage(role=<MessageRole.USER: 'user'>)"]})
        prepared = {KIND: "LLM", "input.value": request, "output.value": request}
        trace.span("OpenAI._prepare_chat_with_tools", root, prepared)
        model(trace, root, said)
        for output, failed in (("21C", False), ("no station", True)):
            returned = {
                "blocks": [{"text": output}],
                "tool_name": "get_weather",
                "raw_input": {"args": [], "kwargs": CITY},
                "raw_output": output,
                "is_error": failed,
            }
            if said is ASKS:
                tool(trace, root, json.dumps(returned))

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("weather?", "It is 21.")
    assert turn["capture"] == {"sessionId": "synthesized"}
    assert [call[1:] for call in tools(turn)] == [
        ("get_weather", CITY, "21C"),
        ("get_weather", CITY, "no station"),
    ]
    assert [call.get("error") for call in turn["tools"]] == [None, {"message": "no station"}]


def tool(trace: TraceBuilder, parent: str, output: str, **more: Any) -> None:
    given = {KIND: "TOOL", "tool.name": "get_weather", "input.value": json.dumps({"kwargs": CITY})}
    trace.span("FunctionTool.acall", parent, given | {"output.value": output} | more)


def test_dspy_marks_the_end_of_an_answer_and_wraps_the_question() -> None:
    trace = TraceBuilder("openinference.instrumentation.dspy")
    entered = {"input_args": {"question": "weather?"}}
    left = {"trajectory": {"observation_0": "21C"}, "reasoning": "r", "answer": "It is 21."}
    root = trace.span(
        "ReAct.forward",
        None,
        {KIND: "CHAIN", "input.value": json.dumps(entered), "output.value": json.dumps(left)},
    )
    called = {KIND: "TOOL", "input.value": json.dumps({"kwargs": CITY}), "output.value": '"21C"'}
    trace.span("get_weather.__call__", root, called)
    model(trace, root, {"content": "[[ ## answer ## ]]\nIt is 21.\n\n[[ ## completed ## ]]"})

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("weather?", "It is 21.")
    assert turn["capture"] == {"sessionId": "synthesized"}
    assert tools(turn) == [(None, "get_weather", CITY, "21C")]


def test_a_haystack_agent_whose_models_have_no_spans_is_a_turn_with_nothing_seen() -> None:
    trace = TraceBuilder("openinference.instrumentation.haystack")
    chain = {KIND: "CHAIN", "input.value": '{"messages": ["ChatMessage(_role=...)"]}'}
    root = trace.span("Pipeline.run", None, chain)
    trace.span("Agent.run", root, chain)

    capture = trace.turn()["capture"]

    assert {capture[field] for field in ("userContent", "finalResponse", "tools")} == {"missing"}


@pytest.mark.parametrize(
    "block", [{"type": "text", "text": "21C"}, [{"type": "text", "text": "21C"}]]
)
def test_a_single_text_block_from_an_mcp_server_is_its_text(block: object) -> None:
    trace = TraceBuilder()
    root = trace.span("desk", None, {KIND: "AGENT"})
    model(trace, root, ASKS)
    tool(trace, root, json.dumps(block))
    model(trace, root, ANSWER)

    assert tools(trace.turn()) == [("c1", "get_weather", CITY, "21C")]


def test_an_object_with_more_than_a_text_block_stays_as_it_is() -> None:
    trace = TraceBuilder()
    root = trace.span("desk", None, {KIND: "AGENT"})
    for returned in ({"type": "text", "text": "21C", "unit": "C"}, {"text": "21C"}):
        tool(trace, root, json.dumps(returned))

    results = [call[3] for call in tools(trace.turn())]

    assert results == [{"type": "text", "text": "21C", "unit": "C"}, {"text": "21C"}]
