"""Spans in the forms that instrumentations of many frameworks write: read exactly, or marked."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from support.builders.span_builders import TraceBuilder, tools, words
from support.builders.spans_of_agents import says, user

KIND = "openinference.span.kind"
CITY = {"city": "Paris"}
ASKED = ("c1", "get_weather", CITY)


def flat(prefix: str, *messages: Mapping[str, Any]) -> dict[str, Any]:
    """Return messages as OpenInference flattens them."""
    found: dict[str, Any] = {}
    for number, message in enumerate(messages):
        key = f"llm.{prefix}_messages.{number}.message"
        found[f"{key}.role"] = message["role"]
        if "content" in message:
            found[f"{key}.content"] = message["content"]
        if "calls" in message:
            call_id, name, arguments = message["calls"]
            call = f"{key}.tool_calls.0.tool_call"
            found |= {
                f"{call}.id": call_id,
                f"{call}.function.name": name,
                f"{call}.function.arguments": json.dumps(arguments),
            }
        if "answers" in message:
            found[f"{key}.tool_call_id"] = message["answers"]
    return found


def model(trace: TraceBuilder, parent: str, given: str, *said: Mapping[str, Any]) -> None:
    attributes = {KIND: "LLM"} | flat("input", {"role": "user", "content": given})
    trace.span("model", parent, attributes | flat("output", *said))


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


ASKS = {"role": "assistant", "calls": ASKED}

# -- arguments and what is written around them -------------------------------------------------------


@pytest.mark.parametrize(
    "written",
    [
        {"kwargs": CITY},  # LlamaIndex, DSPy
        {"args": [], "kwargs": CITY},  # decorators
        {"args": ["Paris"], "kwargs": {}},  # the model's call knows the name
        {"config": {"a": 1}, "tool_input": CITY},  # an envelope that nobody has seen before
    ],
)
def test_the_arguments_are_those_that_the_model_wrote(written: dict[str, Any]) -> None:
    trace = TraceBuilder()
    root = trace.span("run", None, {KIND: "AGENT"})
    model(trace, root, "weather?", ASKS)
    trace.span(
        "get_weather",
        root,
        {
            KIND: "TOOL",
            "tool.name": "get_weather",
            "input.value": json.dumps(written),
            "output.value": "21C",
        },
    )
    model(trace, root, "weather?", assistant("It is 21."))

    assert tools(trace.turn()) == [("c1", "get_weather", CITY, "21C")]


def test_values_without_names_are_marked_where_no_model_call_tells_them() -> None:
    for attributes in (
        {
            "traceloop.span.kind": "tool",
            "traceloop.entity.name": "get_weather",
            "traceloop.entity.input": json.dumps({"args": ["Paris"], "kwargs": {}}),
        },
        {
            "langfuse.observation.type": "tool",
            "langfuse.observation.input": json.dumps({"args": ["Paris"], "kwargs": {}}),
        },
    ):
        trace = TraceBuilder()
        root = trace.span("run", None, {KIND: "AGENT", "input.value": "weather?"})
        trace.span("get_weather", root, attributes)

        (call,) = trace.turn()["tools"]

        assert (call["arguments"], call["capture"]["arguments"]) == (["Paris"], "ambiguous")


@pytest.mark.parametrize(
    ("calling", "arguments", "flaw"),
    [
        ("tool_name='get_weather' arguments={'city': 'Paris'} log='...'", CITY, None),
        ({"tool_name": "get_weather", "arguments": CITY}, CITY, None),
        ("ToolCalling(get_weather)", "ToolCalling(get_weather)", "ambiguous"),
    ],
)
def test_crewai_names_its_agents_and_shows_the_call_as_text(
    calling: object, arguments: object, flaw: str | None
) -> None:
    trace = TraceBuilder()
    crew = trace.span(
        "Crew_1.kickoff",
        None,
        {
            KIND: "CHAIN",
            "output.value": "Sunny, 21 degrees.",
            "input.value": json.dumps({"place": "Paris"}),
        },
    )
    agent = trace.span("Weather Desk._execute_core", crew, {KIND: "AGENT"})
    model(trace, agent, "Current Task: weather", assistant("Thought: I must look"))
    wrapped = {"tool_string": "...", "tool": "CrewStructuredTool", "calling": calling}
    trace.span(
        "ToolUsage._use",
        agent,
        {
            KIND: "TOOL",
            "tool.name": "get_weather",
            "input.value": json.dumps(wrapped),
            "output.value": "21C",
        },
    )
    model(
        trace,
        agent,
        "Current Task: weather",
        assistant("Thought: done\nFinal Answer: Sunny, 21 degrees."),
    )

    turn = trace.turn()

    (call,) = turn["tools"]
    assert (call["arguments"], call.get("capture", {}).get("arguments")) == (arguments, flaw)
    assert call["agent"] == "Weather Desk"
    assert words(turn, "finalResponse") == "Sunny, 21 degrees."


# -- answers that a framework takes out of a model's words -------------------------------------------


@pytest.mark.parametrize("key", ["answer", "output", "result"])
def test_the_answer_that_a_program_returns_is_the_end_of_what_the_model_wrote(key: str) -> None:
    trace = TraceBuilder()
    root = trace.span(
        "ReAct.forward",
        None,
        {
            KIND: "CHAIN",
            "input.value": '{"question": "weather?"}',
            "output.value": json.dumps({"reasoning": "r", key: "It is 21."}),
        },
    )
    model(trace, root, "[[ ## question ## ]]\nweather?", assistant("[[ ## answer ## ]]\nIt is 21."))

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("weather?", "It is 21.")


def test_what_a_chain_returns_does_not_replace_other_words_of_the_model() -> None:
    trace = TraceBuilder()
    root = trace.span("chain", None, {KIND: "CHAIN", "output.value": '{"result": "stored"}'})
    model(trace, root, "weather?", assistant("It is 21."))

    assert words(trace.turn(), "finalResponse") == "It is 21."


# -- runs that no span is around -----------------------------------------------------------------------


def invoked(trace: TraceBuilder, name: str, parent: str, asked: str, answer: str | None) -> None:
    operation = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": name}
    agent = trace.span(f"invoke_agent {name}", parent, operation)
    call = {"type": "tool_call", "id": "h1", "name": "transfer_to_refunds", "arguments": "{}"}
    part = call if answer is None else {"type": "text", "content": answer}
    trace.span(
        "chat",
        agent,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.input.messages": json.dumps(
                [{"role": "user", "parts": [{"type": "text", "content": asked}]}]
            ),
            "gen_ai.output.messages": json.dumps([{"role": "assistant", "parts": [part]}]),
        },
    )


def test_an_agent_that_takes_over_goes_on_with_the_turn() -> None:
    trace = TraceBuilder()
    request = trace.span("POST /chat", None, {})
    invoked(trace, "triage", request, "My money back", None)
    invoked(trace, "refunds", request, "My money back", "Refunded.")

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == (
        "My money back",
        "Refunded.",
    )
    assert [call[1] for call in tools(turn)] == ["transfer_to_refunds"]


@pytest.mark.parametrize(
    ("second", "answer"), [("Another thing", None), ("My money back", "Which order?")]
)
def test_runs_side_by_side_that_hand_nothing_over_stay_turns(
    second: str, answer: str | None
) -> None:
    trace = TraceBuilder()
    request = trace.span("worker", None, {})
    invoked(trace, "triage", request, "My money back", answer)
    invoked(trace, "refunds", request, second, "Refunded.")

    assert len(trace.turns()) == 2


# -- conventions of their own --------------------------------------------------------------------------


def test_spring_ai_marks_its_tools_and_its_conversation() -> None:
    trace = TraceBuilder("org.springframework.boot")
    client = trace.span(
        "spring_ai chat_client",
        None,
        {
            "gen_ai.operation.name": "framework",
            "spring.ai.kind": "chat_client",
            "spring.ai.chat.client.conversation.id": "conv-1",
        },
    )
    advisor = trace.span(
        "call", client, {"spring.ai.kind": "advisor", "gen_ai.operation.name": "framework"}
    )
    trace.span(
        "chat gpt", advisor, {"gen_ai.operation.name": "chat", "gen_ai.request.model": "gpt"}
    )
    for content in (
        {},
        {
            "spring.ai.tool.call.arguments": json.dumps(CITY),
            "spring.ai.tool.call.id": "c2",
            "spring.ai.tool.call.result": '"rain"',
        },
    ):
        trace.span(
            "tool_call get_weather",
            advisor,
            {
                "spring.ai.kind": "tool_call",
                "gen_ai.operation.name": "framework",
                "spring.ai.tool.definition.name": "get_weather",
                **content,
            },
        )

    (case,) = trace.turns()
    (turn,) = case["actualConversation"]

    assert case["evalId"] == "conv-1"
    assert turn["capture"] == {"userContent": "missing", "finalResponse": "missing"}
    hidden, shown = turn["tools"]
    assert hidden["capture"] == {"id": "missing", "arguments": "missing", "result": "missing"}
    assert tools({"tools": [shown]}) == [("c2", "get_weather", CITY, "rain")]


def test_livekit_has_a_span_for_each_turn_of_a_session() -> None:
    trace = TraceBuilder("livekit-agents")
    session = trace.span("agent_session", None, {"lk.agent_label": "desk"})
    for asked, said in (("Weather?", "It is 21."), ("And now?", "Rain.")):
        spoken = {"lk.user_input": asked, "lk.response.text": said, "lk.room_sid": "room-1"}
        turn = trace.span("agent_turn", session, spoken)
        trace.span("llm_node", turn, {"lk.response.text": said, "gen_ai.request.model": "gpt"})
        trace.span(
            "function_tool",
            turn,
            {
                "lk.function_tool.id": "c1",
                "lk.function_tool.name": "get_weather",
                "lk.function_tool.arguments": json.dumps(CITY),
                "lk.function_tool.output": "no station",
                "lk.function_tool.is_error": asked == "And now?",
            },
        )

    first, second = trace.turns()

    assert first["evalId"] == second["evalId"] == "room-1"
    (one,), (other,) = first["actualConversation"], second["actualConversation"]
    assert (words(one, "userContent"), words(one, "finalResponse")) == ("Weather?", "It is 21.")
    assert (words(other, "userContent"), words(other, "finalResponse")) == ("And now?", "Rain.")
    assert tools(one) == [("c1", "get_weather", CITY, "no station")]
    assert other["tools"][0]["error"]["message"] == "no station"


def test_azure_ai_agents_write_the_whole_run_as_events_of_one_span() -> None:
    trace = TraceBuilder("azure.ai.agents")
    call = {"id": "c1", "type": "function", "function": {"name": "get_weather", "arguments": CITY}}
    bodies = [
        ("gen_ai.user.message", {"role": "user", "content": "weather?"}),
        ("gen_ai.assistant.message", {"tool_calls": [call]}),
        ("gen_ai.tool.message", {"id": "c1", "content": "21C"}),
        ("gen_ai.assistant.message", {"content": {"text": {"value": "It is 21."}}}),
    ]
    trace.span(
        "process_thread_run desk",
        None,
        {"gen_ai.operation.name": "process_thread_run", "gen_ai.thread.id": "thread-1"},
        events=[(name, {"gen_ai.event.content": json.dumps(body)}) for name, body in bodies],
    )

    (case,) = trace.turns()
    (turn,) = case["actualConversation"]

    assert case["evalId"] == "thread-1"
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("weather?", "It is 21.")
    assert tools(turn) == [("c1", "get_weather", CITY, "21C")]


AZURE_CALL = {"type": "function_call", "id": "c1"}
AZURE_ASKED = {
    "role": "assistant",
    "parts": [
        {
            "type": "tool_call",
            "content": AZURE_CALL | {"function": {"name": "f", "arguments": '{"n": 1}'}},
        }
    ],
}
AZURE_RESULT = {"type": "function_call_output", "id": "c1", "output": {"t": 21}}
AZURE_TOLD = {"role": "tool", "parts": [{"type": "tool_call_output", "content": AZURE_RESULT}]}


@pytest.mark.parametrize("in_events", [True, False])
@pytest.mark.parametrize("operation", ["responses", "chat", "invoke_agent"])
def test_an_agent_at_azure_that_stops_for_a_tool_of_the_program_is_one_turn(
    operation: str, in_events: bool
) -> None:
    trace = TraceBuilder("azure.ai.projects")
    root = trace.span("turn", None, {})
    for given, said in ((user("Warm?"), AZURE_ASKED), (AZURE_TOLD, says("It is 21."))):
        messages = {"gen_ai.input.messages": [given], "gen_ai.output.messages": [said]}
        whole = {name: json.dumps(value) for name, value in messages.items()}
        events = [(name, {"gen_ai.event.content": value}) for name, value in whole.items()]
        stated = {"gen_ai.response.model": "m"} if operation == "responses" else {}
        trace.span(
            f"{operation} Desk",
            root,
            {"gen_ai.operation.name": operation, "gen_ai.agent.name": "Desk"}
            | stated
            | ({} if in_events else whole),
            events=events if in_events else [],
        )

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Warm?", "It is 21.")
    assert tools(turn) == [("c1", "f", {"n": 1}, {"t": 21})]


def test_a_tool_that_azure_runs_itself_keeps_its_name() -> None:
    trace = TraceBuilder("azure.ai.projects")
    call = {"type": "mcp_call", "id": "m1", "name": "search", "arguments": '{"q": "x"}'}
    asked = {"role": "assistant", "parts": [{"type": "tool_call", "content": call}]}
    said = json.dumps([asked, says("30 days.")])
    operation = {"gen_ai.operation.name": "invoke_agent", "gen_ai.output.messages": said}
    trace.span("invoke_agent Desk", None, operation)

    turn = trace.turn()

    assert words(turn, "finalResponse") == "30 days."
    assert [(one["name"], one["arguments"]) for one in turn["tools"]] == [("search", {"q": "x"})]


def test_adk_in_go_writes_its_model_calls_under_another_name() -> None:
    trace = TraceBuilder("gcp.vertex.agent")
    root = trace.span("invoke_agent desk", None, {"gen_ai.operation.name": "invoke_agent"})
    asked = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    said = {"content": {"role": "model", "parts": [{"text": "Hello."}]}}
    model = {
        "gen_ai.operation.name": "generate_content",
        "gcp.vertex.agent.llm_request": json.dumps(asked),
        "gcp.vertex.agent.llm_response": json.dumps(said),
    }
    trace.span("generate_content m", root, model)

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")


def test_semantic_kernel_states_an_agents_messages_under_names_of_its_own() -> None:
    trace = TraceBuilder("semantic_kernel")
    trace.span(
        "invoke_agent Host",
        None,
        {
            "gen_ai.operation.name": "invoke_agent",
            "gen_ai.agent.name": "Host",
            "gen_ai.agent.invocation_input": json.dumps([{"role": "user", "content": "Soup?"}]),
            "gen_ai.agent.invocation_output": json.dumps(
                [{"role": "assistant", "content": "Chowder."}]
            ),
        },
    )

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Soup?", "Chowder.")


# -- what instrumentations write in odd places -------------------------------------------------------


def test_positional_arguments_find_the_calls_that_they_belong_to() -> None:
    trace = TraceBuilder()
    root = trace.span("run", None, {KIND: "AGENT", "input.value": "Paris and Rome?"})
    asked = {
        f"llm.output_messages.0.message.tool_calls.{n}.tool_call.{key}": value
        for n, city in enumerate(("Paris", "Rome"))
        for key, value in (
            ("id", f"c{n}"),
            ("function.name", "weather"),
            ("function.arguments", json.dumps({"city": city})),
        )
    }
    trace.span(
        "model", root, {KIND: "LLM", "llm.output_messages.0.message.role": "assistant", **asked}
    )
    for city in ("Rome", "Paris"):
        given = json.dumps({"args": [city], "kwargs": {}})
        spanned = {"tool.name": "weather", "input.value": given, "output.value": f"sun in {city}"}
        trace.span("weather", root, {KIND: "TOOL", **spanned})

    assert tools(trace.turn()) == [
        ("c0", "weather", {"city": "Paris"}, "sun in Paris"),
        ("c1", "weather", {"city": "Rome"}, "sun in Rome"),
    ]


def test_a_span_for_each_event_of_a_tool_is_one_call() -> None:
    trace = TraceBuilder("beeai-framework")
    root = trace.span("agent", None, {KIND: "AGENT", "input.value": "weather?"})
    for n, query in enumerate(("one", "two")):
        start = {KIND: "TOOL", "input.value": json.dumps({"query": query})}
        trace.span(f"tool.search.wikipedia.start-{n}", root, start)
        trace.span(
            f"tool.search.wikipedia.success-{n}",
            root,
            {KIND: "TOOL", "output.value": f"of {query}"},
        )
        trace.span(f"tool.search.wikipedia.finish-{n}", root, {KIND: "TOOL"})
    trace.span("tool.weather.start-9", root, {KIND: "TOOL", "input.value": json.dumps(CITY)})
    trace.span("tool.weather.error-9", root, {KIND: "TOOL"}, error="ValueError: no station")

    turn = trace.turn()

    assert tools(turn)[:2] == [
        (None, "wikipedia", {"query": "one"}, "of one"),
        (None, "wikipedia", {"query": "two"}, "of two"),
    ]
    (failed,) = turn["tools"][2:]
    assert (failed["name"], failed["error"]["type"]) == ("weather", "ValueError")


def test_calls_that_stand_where_words_would_be_are_calls() -> None:
    trace = TraceBuilder("ai.koog")
    root = trace.span("invoke_agent", None, {"gen_ai.operation.name": "invoke_agent"})
    call = {
        "id": "c1",
        "type": "function",
        "function": {"name": "get_weather", "arguments": json.dumps(CITY)},
    }
    trace.span(
        "chat",
        root,
        {
            "gen_ai.operation.name": "chat",
            "gen_ai.prompt.0.role": "user",
            "gen_ai.prompt.0.content": "weather?",
            "gen_ai.completion.0.role": "assistant",
            "gen_ai.completion.0.content": json.dumps([call]),
        },
    )
    trace.span(
        "execute_tool",
        root,
        {
            "gen_ai.operation.name": "execute_tool",
            "gen_ai.tool.name": "get_weather",
            "input.value": json.dumps(CITY),
            "output.value": "21C",
        },
    )

    turn = trace.turn()

    assert tools(turn) == [("c1", "get_weather", CITY, "21C")]
    assert "intermediateResponses" not in turn


def test_haystack_takes_components_for_models_that_are_none() -> None:
    trace = TraceBuilder("openinference.instrumentation.haystack")
    root = trace.span("Pipeline", None, {KIND: "CHAIN"})
    trace.span(
        "PromptBuilder",
        root,
        {
            KIND: "LLM",
            "output.value": json.dumps({"prompt": "Answer: weather?"}),
            "llm.prompt_template.variables": json.dumps({"question": "weather?"}),
        },
    )
    model(trace, root, "Answer: weather?", assistant("It is 21."))
    trace.span("AnswerBuilder", root, {KIND: "LLM", "output.value": json.dumps({"answers": ["x"]})})

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("weather?", "It is 21.")


def test_openlit_writes_a_prompt_as_lines_of_speakers() -> None:
    trace = TraceBuilder("openlit.otel.tracing")
    root = trace.span("invoke_agent A", None, {"gen_ai.operation.name": "invoke_agent"})
    prompt = "system: Be brief.\nuser: What is\nthe weather?"
    trace.span(
        "chat",
        root,
        {"gen_ai.operation.name": "chat"},
        events=[
            ("gen_ai.content.prompt", {"gen_ai.prompt": prompt}),
            ("gen_ai.content.completion", {"gen_ai.completion": "It is 21."}),
        ],
    )

    turn = trace.turn()

    assert words(turn, "userContent") == "What is\nthe weather?"
    assert words(turn, "finalResponse") == "It is 21."
