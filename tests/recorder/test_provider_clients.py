"""Agents that are loops around a provider's client, as instrumentations of the clients show them."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from support.builders.span_builders import TraceBuilder, intermediate, tools, words

GENAI = "opentelemetry.instrumentation.google_genai"
OPENAI = "opentelemetry.instrumentation.openai.v1"
ASKED = {"role": "user", "parts": [{"type": "text", "content": "Weather in Paris and Rome?"}]}


def chat(trace: TraceBuilder, parent: str, given: list[Any], *parts: Mapping[str, Any]) -> None:
    said = [{"role": "assistant", "parts": parts, "finish_reason": "stop"}]
    trace.span(
        "chat",
        parent,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(given),
            "gen_ai.output.messages": json.dumps(said),
        },
    )


def text(words: str) -> dict[str, Any]:
    return {"type": "text", "content": words}


def call(call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": "get_weather", "arguments": arguments}


def result(call_id: str, response: Any) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": call_id, "response": response}


# -- opentelemetry-instrumentation-google-genai ----------------------------------------------------------


def test_a_position_in_a_message_is_no_call_id() -> None:
    trace = TraceBuilder(GENAI)
    root = trace.span("POST /chat")
    # The text before the calls moves their positions, not those of the results.
    paris, rome = call("get_weather_1", city="Paris"), call("get_weather_2", city="Rome")
    asks = [text("Let me look."), paris, rome]
    told = (result("get_weather_0", {"result": "21C"}), result("get_weather_1", {"result": "25C"}))
    chat(trace, root, [ASKED], *asks)
    turns = [{"role": "assistant", "parts": asks}, {"role": "user", "parts": told}]
    chat(trace, root, [ASKED, *turns], text("21 and 25."))

    turn = trace.turn()

    assert tools(turn) == [
        (None, "get_weather", {"city": "Paris"}, "21C"),
        (None, "get_weather", {"city": "Rome"}, "25C"),
    ]
    assert words(turn, "finalResponse") == "21 and 25."


def test_a_call_that_is_repeated_in_the_next_message_is_another_call() -> None:
    trace = TraceBuilder(GENAI)
    root = trace.span("POST /chat")
    history: list[Any] = [ASKED]
    for attempt, told in ((1, {"error": "no station"}), (2, {"result": "21C"})):
        asks = call("get_weather_0", city="Paris", attempt=attempt)
        chat(trace, root, history, asks)
        history = [
            *history,
            {"role": "assistant", "parts": [asks]},
            {"role": "user", "parts": [result("get_weather_0", told)]},
        ]
    chat(trace, root, history, text("21."))

    failed, succeeded = trace.turn()["tools"]

    assert (failed["arguments"]["attempt"], failed["error"]["message"]) == (1, "no station")
    assert (succeeded["arguments"]["attempt"], succeeded["result"]) == (2, "21C")
    assert "error" not in succeeded


def test_an_id_from_gemini_stays() -> None:
    trace = TraceBuilder(GENAI)
    root = trace.span("POST /chat")
    asks = call("fc-7f3", city="Paris")
    chat(trace, root, [ASKED], asks)
    turns = [
        {"role": "assistant", "parts": [asks]},
        {"role": "user", "parts": [result("fc-7f3", {"temperature": 21})]},
    ]
    chat(trace, root, [ASKED, *turns], text("21."))

    assert tools(trace.turn()) == [
        ("fc-7f3", "get_weather", {"city": "Paris"}, {"temperature": 21})
    ]


def test_what_the_sdk_of_google_wraps_around_a_result_is_removed_from_its_text() -> None:
    trace = TraceBuilder("opentelemetry.instrumentation.google_generativeai")
    root = trace.span("POST /chat")
    asks = {"type": "tool_call", "name": "get_weather", "arguments": {"city": "Paris"}}
    told = {"type": "tool_call_response", "response": '{"result": "21C"}'}
    chat(trace, root, [ASKED], asks)
    turns = [{"role": "assistant", "parts": [asks]}, {"role": "tool", "parts": [told]}]
    chat(trace, root, [ASKED, *turns], text("21."))

    assert tools(trace.turn()) == [(None, "get_weather", {"city": "Paris"}, "21C")]


# -- OpenLLMetry: OpenAI's Responses API -----------------------------------------------------------------


def test_the_result_of_a_single_call_is_that_calls_whatever_its_id() -> None:
    trace = TraceBuilder(OPENAI)
    root = trace.span("POST /chat")
    asks = call("fc_1", city="Paris")
    chat(trace, root, [ASKED], asks)
    turns = [
        {"role": "assistant", "parts": [asks]},
        {"role": "tool", "parts": [result("call_1", "21C")]},
    ]
    chat(trace, root, [ASKED, *turns], text("21."))

    turn = trace.turn()

    assert tools(turn) == [("fc_1", "get_weather", {"city": "Paris"}, "21C")]
    assert "tools" not in turn["capture"]


def test_results_of_parallel_calls_with_other_ids_are_not_assigned() -> None:
    trace = TraceBuilder(OPENAI)
    root = trace.span("POST /chat")
    asks = [call("fc_1", city="Paris"), call("fc_2", city="Rome")]
    chat(trace, root, [ASKED], *asks)
    turns = [{"role": "assistant", "parts": [one]} for one in asks] + [
        {"role": "tool", "parts": [result(f"call_{n}", f"2{n}C")]} for n in (1, 2)
    ]
    chat(trace, root, [ASKED, *turns], text("21 and 22."))

    turn = trace.turn()

    assert [one["capture"] for one in turn["tools"]] == [{"result": "missing"}] * 2
    assert turn["capture"]["tools"] == "ambiguous"


# -- LiteLLM's callback ------------------------------------------------------------------------------------


def test_litellm_writes_calls_as_completions_and_results_as_texts_with_an_id() -> None:
    trace = TraceBuilder("litellm")
    root = trace.span("POST /chat")
    requested = [
        {
            "id": f"call_{n}",
            "type": "function",
            "function": {"name": "get_weather", "arguments": json.dumps({"city": city})},
        }
        for n, city in enumerate(("Paris", "Rome"))
    ]
    asks = {"role": "assistant", "parts": [text("Let me look.")]}
    trace.span(
        "litellm_request",
        root,
        {
            "llm.request.type": "completion",
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([ASKED]),
            "gen_ai.output.messages": json.dumps([asks]),
            "gen_ai.completion.0.function_call.name": "get_weather",
            "gen_ai.completion.0.function_call.arguments": '{"city": "Paris"}',
            "gen_ai.completion.1.function_call.name": "get_weather",
            "gen_ai.completion.1.function_call.arguments": '{"city": "Rome"}',
        },
    )
    alone = trace.turn()
    told = [
        {"role": "tool", "parts": [text(words)], "tool_call_id": f"call_{n}"}
        for n, words in enumerate(("21C", "25C"))
    ]
    chat(trace, root, [ASKED, asks | {"tool_calls": requested}, *told], text("21 and 25."))

    turn = trace.turn()

    assert [one["arguments"]["city"] for one in alone["tools"]] == ["Paris", "Rome"]
    assert tools(turn) == [
        ("call_0", "get_weather", {"city": "Paris"}, "21C"),
        ("call_1", "get_weather", {"city": "Rome"}, "25C"),
    ]
    assert intermediate(turn) == ["Let me look."]


# -- opentelemetry-instrumentation-openai-v2 ---------------------------------------------------------------


def test_without_content_the_calls_of_earlier_turns_are_not_this_turns() -> None:
    trace = TraceBuilder("opentelemetry.instrumentation.openai_v2")
    root = trace.span("POST /chat")
    earlier, now = (
        {"tool_calls": [{"id": call_id, "type": "function", "function": {"name": "get_weather"}}]}
        for call_id in ("call_1", "call_2")
    )
    history: list[tuple[str, Any]] = [
        ("gen_ai.user.message", None),
        ("gen_ai.assistant.message", earlier),
        ("gen_ai.tool.message", {"id": "call_1"}),
        ("gen_ai.assistant.message", {}),
        ("gen_ai.user.message", None),
    ]
    for choice in (now | {"role": "assistant"}, {"role": "assistant"}):
        span = trace.span("chat gpt", root, {"gen_ai.operation.name": "chat"})
        for name, body in history:
            trace.log(span, name, body)
        trace.log(span, "gen_ai.choice", {"index": 0, "message": choice})
        history += [("gen_ai.assistant.message", now), ("gen_ai.tool.message", {"id": "call_2"})]

    turn = trace.turn()

    assert [one["id"] for one in turn["tools"]] == ["call_2"]
    assert turn["capture"]["userContent"] == "missing"


# -- content capture is off, and no tool has a span --------------------------------------------------------


def test_tool_calls_that_only_a_hidden_answer_would_show_are_missing_not_none() -> None:
    trace = TraceBuilder(OPENAI)
    root = trace.span("POST /chat")
    for _ in range(2):
        trace.span("chat gpt", root, {"gen_ai.operation.name": "chat"})

    turn = trace.turn()

    assert turn["capture"]["tools"] == "missing"
    assert "tools" not in turn


def test_hidden_answers_below_an_agent_leave_its_tools_known() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent desk", None, {"gen_ai.operation.name": "invoke_agent"})
    trace.span("chat gpt", root, {"gen_ai.operation.name": "chat"})

    turn = trace.turn()

    assert turn["capture"]["finalResponse"] == "missing"
    assert "tools" not in turn["capture"]


# -- tools that the provider runs ------------------------------------------------------------------


FETCHED = {"type": "web_fetch_tool_result_error", "error_code": "url_not_accessible"}
BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "Let me search."},
    {"type": "mcp_tool_use", "id": "m1", "name": "places", "input": {"near": "Rome"}},
    {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": False, "content": "two"},
    {"type": "server_tool_use", "id": "s1", "name": "web_fetch", "input": {"url": "x"}},
    {"type": "web_fetch_tool_result", "tool_use_id": "s1", "content": FETCHED},
    {"type": "text", "text": "21 and 25."},
]


@pytest.mark.parametrize(
    "said", [[{"role": "assistant", "parts": BLOCKS}], BLOCKS], ids=["a message", "its content"]
)
def test_tools_that_anthropic_runs_are_calls_with_their_results(said: list[Any]) -> None:
    trace = TraceBuilder()
    trace.span(
        "chat",
        trace.span("POST /chat"),
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps([ASKED]),
            "gen_ai.output.messages": json.dumps(said),
        },
    )

    turn = trace.turn()

    assert tools(turn) == [
        ("m1", "places", {"near": "Rome"}, "two"),
        ("s1", "web_fetch", {"url": "x"}, FETCHED),
    ]
    assert ["error" in tool for tool in turn["tools"]] == [False, True]
    assert words(turn, "finalResponse") == "21 and 25."
