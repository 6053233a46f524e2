"""OpenInference's spans of clients and frameworks that leave something out or write it elsewhere."""

import json
from typing import Any

import pytest

from span_builders import TraceBuilder, tools

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
