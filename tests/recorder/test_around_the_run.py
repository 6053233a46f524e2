"""What happens around a run is not read as the run: guardrails, approvals, own loops, wrappers of tools."""

import json
from typing import Any

import pytest

from support.builders.span_builders import TraceBuilder, intermediate, tools, words

KIND = "openinference.span.kind"


def model(asked: str, answer: str) -> dict[str, Any]:
    """Return the attributes of an OpenInference model span."""
    return {
        KIND: "LLM",
        "llm.input_messages.0.message.role": "user",
        "llm.input_messages.0.message.content": asked,
        "llm.output_messages.0.message.role": "assistant",
        "llm.output_messages.0.message.content": answer,
    }


def messages(*given: tuple[str, list[dict[str, Any]]]) -> str:
    return json.dumps([{"role": role, "parts": parts} for role, parts in given])


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "content": content}


def request(call_id: str, name: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}


def response(call_id: str, found: Any) -> dict[str, Any]:
    return {"type": "tool_call_response", "id": call_id, "response": found}


# -- guardrails and approvals ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "kind"),
    [("tone", "GUARDRAIL"), ("tone_guardrail", "CHAIN"), ("Guardrail: tone", "CHAIN")],
)
def test_what_a_guardrails_agent_reads_and_says_is_no_part_of_the_dialogue(
    name: str, kind: str
) -> None:
    trace = TraceBuilder()
    root = trace.span("workflow", None, {KIND: "AGENT"})
    agent = trace.span("Support", root, {KIND: "AGENT"})
    trace.span("response", agent, model("Can I return socks?", "Yes, within 30 days."))
    guardrail = trace.span(name, agent, {KIND: kind})
    checker = trace.span("Tone checker", guardrail, {KIND: "AGENT"})
    trace.span("response", checker, model("Yes, within 30 days.", '{"rude": false}'))
    trace.span("lookup", checker, {KIND: "TOOL"}, error="no such word")

    turn = trace.turn()

    assert words(turn, "userContent") == "Can I return socks?"
    assert words(turn, "finalResponse") == "Yes, within 30 days."
    assert intermediate(turn) == []
    assert tools(turn) == []
    assert turn["telemetry"]["status"] == "ok"


def test_a_guardrail_beside_the_agent_is_no_turn() -> None:
    trace = TraceBuilder()
    workflow = trace.span("workflow", None)
    guardrail = trace.span("input", workflow, {KIND: "GUARDRAIL"})
    checker = trace.span("Checker", guardrail, {KIND: "AGENT"})
    trace.span("response", checker, model("Can I return socks?", "on topic"))
    agent = trace.span("Support", workflow, {KIND: "AGENT"})
    trace.span("response", agent, model("Can I return socks?", "Yes."))

    assert words(trace.turn(), "finalResponse") == "Yes."


def test_an_agent_with_guardrails_around_all_of_it_is_read() -> None:
    trace = TraceBuilder()
    root = trace.span("chat", None, {KIND: "CHAIN"})
    guarded = trace.span("guardrails", root, {KIND: "CHAIN"})
    trace.span("response", guarded, model("Can I return socks?", "Yes."))

    assert words(trace.turn(), "finalResponse") == "Yes."


@pytest.mark.parametrize(
    "raised",
    [
        "GraphInterrupt",
        "langgraph.errors.GraphInterrupt",
        "pydantic_ai.exceptions.ApprovalRequired",
        "InputGuardrailTripwireTriggered",
    ],
)
def test_a_run_that_waits_for_a_person_or_was_stopped_on_purpose_did_not_crash(raised: str) -> None:
    trace = TraceBuilder()
    event = ("exception", {"exception.type": raised, "exception.message": "(Interrupt(value=1),)"})
    root = trace.span(
        "LangGraph", None, {KIND: "CHAIN"}, events=[event], error=f"{raised}((Interrupt(value=1),))"
    )
    asked = {
        name: value for name, value in model("Delete F-9.", "").items() if "output" not in name
    }
    trace.span("response", root, asked)

    turn = trace.turn()

    assert turn["telemetry"]["status"] == "ok"
    assert turn["capture"]["finalResponse"] == "missing"


# -- own loops --------------------------------------------------------------------------------------


def test_an_own_loop_under_one_request_is_one_turn_of_the_requests_session() -> None:
    asked: dict[str, Any] = {"role": "user", "content": "Is order 12 paid?"}
    called = {"toolCallId": "q1", "toolName": "get_order", "input": {"id": 12}}
    trace = TraceBuilder(scope="ai")
    http = trace.span("handle chat", None, {"session.id": "th-7", "user.id": "ann"}, scope="server")
    for finish, said, more in (("tool-calls", "I look it up.", True), ("stop", "Yes.", False)):
        response_ = {"ai.response.finishReason": finish, "ai.response.text": said}
        calls = {"ai.response.toolCalls": json.dumps([called])} if more else {}
        told = [asked] if more else [asked, {"role": "assistant", "content": "I look it up."}]
        step = trace.span(
            "ai.generateText", http,
            {"ai.operationId": "ai.generateText", "ai.prompt": json.dumps({"messages": told}), **response_},
        )  # fmt: skip
        trace.span(
            "ai.generateText.doGenerate", step,
            {"ai.operationId": "ai.generateText.doGenerate", "ai.prompt.messages": json.dumps(told),
             **response_, **calls},
        )  # fmt: skip

    (case,) = trace.turns()

    (turn,) = case["actualConversation"]
    assert (case["evalId"], case["sessionInput"]["userId"]) == ("th-7", "ann")
    assert [tool["name"] for tool in turn["tools"]] == ["get_order"]
    assert intermediate(turn) == ["I look it up."]
    assert words(turn, "finalResponse") == "Yes."


# -- tools ------------------------------------------------------------------------------------------


def test_a_tool_named_only_by_its_span_is_the_call_that_was_requested() -> None:
    trace = TraceBuilder()
    root = trace.span("Planner", None, {"gen_ai.operation.name": "invoke_agent"})
    asked = messages(("user", [text("A hotel and a map")]))
    wanted = messages(
        ("assistant", [request("1", "book", city="Porto"), request("2", "map", city="Porto")])
    )
    chat = {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked}
    trace.span("chat m", root, {**chat, "gen_ai.output.messages": wanted})
    tool = {"gen_ai.operation.name": "execute_tool"}
    trace.span("execute_tool book", root, {**tool, "error.type": "NoRooms"}, error="no rooms left")
    trace.span("execute_tool map", root, tool)
    returned = messages(
        ("tool", [response("1", "NoRooms")]), ("tool", [response("2", {"lines": 6})])
    )
    said = messages(("assistant", [text("Here is the map.")]))
    trace.span(
        "chat m", root, {**chat, "gen_ai.input.messages": returned, "gen_ai.output.messages": said}
    )

    found = trace.turn()["tools"]

    assert [(one["name"], one["arguments"]) for one in found] == [
        ("book", {"city": "Porto"}),
        ("map", {"city": "Porto"}),
    ]
    assert found[0]["error"]["type"] == "NoRooms"
    assert found[1]["result"] == {"lines": 6}


@pytest.mark.parametrize("convention", ["mlflow", "openinference"])
def test_a_wrapper_around_all_tools_is_the_call_that_it_was_given(convention: str) -> None:
    call = json.dumps(
        {"call": {"tool_name": "find", "args": {"city": "Leeds"}, "tool_call_id": "t1"}}
    )
    trace = TraceBuilder()
    root = trace.span("agent", None, {KIND: "AGENT"})
    attributes = {
        "mlflow": {
            "mlflow.spanType": '"TOOL"', "mlflow.spanInputs": call, "mlflow.spanOutputs": '["Acme"]'
        },
        "openinference": {KIND: "TOOL", "input.value": call, "output.value": '["Acme"]'},
    }[convention]  # fmt: skip
    asks = {
        "llm.output_messages.0.message.tool_calls.0.tool_call.id": "t1",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "find",
        "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": '{"city": "Leeds"}',
    }
    trace.span("chat", root, model("Who?", "") | asks)
    trace.span("ToolManager.handle_call", root, attributes)
    trace.span("chat", root, model("Who?", "Acme."))

    (tool,) = trace.turn()["tools"]

    assert (tool["name"], tool["arguments"], tool["result"]) == (
        "find",
        {"city": "Leeds"},
        ["Acme"],
    )


@pytest.mark.parametrize("apart", [True, False])
def test_calls_and_results_within_one_answer_of_a_model_are_read(apart: bool) -> None:
    parts = [
        request("1", "wiki", page="returns"),
        response("1", "14 days"),
        text("Returns take 14 days."),
    ]
    roles = ("assistant", "tool", "assistant")
    whole = [(role, [part]) for role, part in zip(roles, parts, strict=True)]
    said = messages(*(whole if apart else [("assistant", parts)]))
    asked = messages(("user", [text("What about returns?")]))
    trace = TraceBuilder()
    root = trace.span("agent", None, {"gen_ai.operation.name": "invoke_agent"})
    trace.span(
        "chat m", root,
        {"gen_ai.operation.name": "chat", "gen_ai.input.messages": asked, "gen_ai.output.messages": said},
    )  # fmt: skip

    turn = trace.turn()

    (tool,) = turn["tools"]
    assert (tool["name"], tool["result"]) == ("wiki", "14 days")
    assert intermediate(turn) == []
    assert words(turn, "finalResponse") == "Returns take 14 days."
