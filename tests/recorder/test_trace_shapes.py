"""Traces of other shapes: log records, open roots, circles, other prefixes."""

import json
from typing import Any

import pytest

from evaltap.recorder.telemetry.spans import Span
from support.builders.span_builders import TRACE, TraceBuilder, cases_of, intermediate, tools, words
from support.builders.spans_of_agents import AGENT, OPERATION, chat, executed, says, told, user


def test_content_in_log_records_completes_the_spans() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    span_id = trace.span("chat m", root, {OPERATION: "chat"})
    trace.log(
        span_id,
        "gen_ai.client.inference.operation.details",
        **{
            "gen_ai.input.messages": [user("Hi")],
            "gen_ai.output.messages": [says("Hello.")],
        },
    )

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")


def test_message_events_of_old_in_log_records_are_read() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    first = trace.span("chat m", root, {OPERATION: "chat", "gen_ai.system": "openai"})
    call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"n": 1}'}}
    trace.log(first, "gen_ai.system.message", {"content": "Be nice"})
    trace.log(first, "gen_ai.user.message", {"content": "Hi"})
    choice = {"index": 0, "finish_reason": "tool_calls", "message": {"tool_calls": [call]}}
    trace.log(first, "gen_ai.choice", choice)
    second = trace.span("chat m", root, {OPERATION: "chat", "gen_ai.system": "openai"})
    trace.log(second, "gen_ai.user.message", {"content": "Hi"})
    trace.log(second, "gen_ai.assistant.message", {"tool_calls": [call]})
    trace.log(second, "gen_ai.tool.message", {"content": "ok", "id": "c1"})
    trace.log(second, "gen_ai.choice", {"index": 0, "message": {"content": "Hello."}})

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")
    assert tools(turn) == [("c1", "f", {"n": 1}, "ok")]


def test_an_ai_sdk_run_is_read_without_its_request_headers() -> None:
    trace = TraceBuilder(scope="ai")
    root = trace.span(
        "ai.generateText",
        None,
        {
            "ai.operationId": "ai.generateText",
            "ai.prompt": '{"system": "x", "prompt": "Weather?"}',
            "ai.response.text": "It rains.",
            "ai.telemetry.metadata.sessionId": "s1",
            "ai.request.headers.authorization": "secret",
        },
    )
    step = {"ai.operationId": "ai.generateText.doGenerate", "ai.model.id": "m"}
    asked = [{"toolCallId": "c1", "toolName": "weather", "args": '{"city": "Paris"}'}]
    prompt = {
        "ai.prompt.messages": told({"role": "user", "content": "Weather?"}),
        "ai.usage.promptTokens": 5,
    }
    trace.span("do", root, {**step, **prompt, "ai.response.toolCalls": json.dumps(asked)})
    trace.span(
        "ai.toolCall",
        root,
        {
            "ai.operationId": "ai.toolCall",
            "ai.toolCall.name": "weather",
            "ai.toolCall.id": "c1",
            "ai.toolCall.args": '{"city": "Paris"}',
            "ai.toolCall.result": '"rain"',
        },
    )
    trace.span("do", root, {**step, "ai.response.text": "It rains.", "ai.usage.promptTokens": 7})

    (case,) = trace.turns()

    (turn,) = case["actualConversation"]
    assert case["evalId"] == "s1"
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Weather?", "It rains.")
    assert tools(turn) == [("c1", "weather", {"city": "Paris"}, "rain")]
    assert (turn["telemetry"]["inputTokens"], intermediate(turn)) == (12, [])
    assert "secret" not in json.dumps(case)


def test_a_claude_code_interaction_is_a_turn_without_the_words_it_does_not_show() -> None:
    trace = TraceBuilder()
    shared = {"session.id": "s1"}
    root = trace.span("claude_code.interaction", None, {**shared, "user_prompt": "Fix it"})
    trace.span("claude_code.llm_request", root, {**shared, "model": "m", "input_tokens": 9})
    tool = trace.span(
        "claude_code.tool",
        root,
        {**shared, "tool_name": "Bash", "tool_use_id": "toolu_1"},
        events=[("tool.output", {"input": '{"command": "ls"}', "output": "a.py"})],
    )
    trace.span("claude_code.tool.execution", tool, {"success": True})

    (case,) = trace.turns()

    (turn,) = case["actualConversation"]
    assert (case["evalId"], words(turn, "userContent")) == ("s1", "Fix it")
    assert tools(turn) == [("toolu_1", "Bash", {"command": "ls"}, "a.py")]
    assert turn["capture"] == {"finalResponse": "missing"}


def test_the_shape_of_adk_under_another_prefix_is_read_by_that_prefix() -> None:
    system = "trpc.python.agent"
    trace = TraceBuilder(scope=system)
    shared = {"gen_ai.system": system}
    root = trace.span(
        "invocation",
        None,
        {
            **shared,
            OPERATION: "run_runner",
            f"{system}.runner.name": "r",
            f"{system}.runner.app_name": "shop",
            f"{system}.runner.session_id": "s1",
            f"{system}.runner.user_id": "u1",
        },
    )
    request = {"model": "m", "contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    asked = {"function_call": {"id": "c1", "name": "f", "args": {"n": 1}}}
    model = {**shared, OPERATION: "call_llm", f"{system}.llm_request": json.dumps(request)}
    first = {"content": {"role": "model", "parts": [asked]}}
    trace.span("call_llm", root, {**model, f"{system}.llm_response": json.dumps(first)})
    trace.span(
        "execute_tool f",
        root,
        {
            **shared,
            OPERATION: "execute_tool",
            "gen_ai.tool.name": "f",
            "gen_ai.tool.call.id": "c1",
            f"{system}.tool_call_args": '{"n": 1}',
            f"{system}.tool_response": '{"result": "ok"}',
        },
    )
    last = {"content": {"role": "model", "parts": [{"text": "Hello."}]}}
    trace.span("call_llm", root, {**model, f"{system}.llm_response": json.dumps(last)})

    (case,) = trace.turns()

    (turn,) = case["actualConversation"]
    assert (case["evalId"], case["sessionInput"]) == ("s1", {"appName": "shop", "userId": "u1"})
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")
    assert tools(turn) == [("c1", "f", {"n": 1}, "ok")]


def test_pending_spans_of_logfire_are_as_if_they_had_not_been_written() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, {**AGENT, "logfire.span_type": "pending_span"})
    trace.span("chat m", root, chat(told(user("Hi")), told(says("Hello."))))

    (case,) = trace.turns()

    assert words(case["actualConversation"][0], "finalResponse") == "Hello."


def test_a_root_that_is_still_open_makes_an_incomplete_turn() -> None:
    span = Span(TRACE, "01" * 8, "invoke_agent a", 5, 0, attributes=AGENT)

    (case,) = cases_of([span])

    (turn,) = case["actualConversation"]
    assert turn["telemetry"]["status"] == "incomplete"
    assert "finalResponse" not in turn.get("capture", {})


def test_spans_that_are_each_others_parents_do_not_hang() -> None:
    first = Span(TRACE, "01" * 8, "invoke_agent a", 1, 9, parent_id="02" * 8, attributes=AGENT)
    second = Span(TRACE, "02" * 8, "step", 2, 8, parent_id="01" * 8)

    assert len(cases_of([first, second])) == 1


@pytest.mark.slow
def test_ten_thousand_spans_are_read_in_a_moment() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    parent = root
    for number in range(5_000):
        parent = trace.span("step", root if number % 50 == 0 else parent)
        trace.span("execute_tool f", root, executed("f", **{"gen_ai.tool.call.id": f"c{number}"}))

    assert len(trace.turn()["tools"]) == 5_000


def called(name: str, call_id: str, **arguments: str) -> dict[str, Any]:
    given = {"gen_ai.tool.call.id": call_id, "gen_ai.tool.call.arguments": json.dumps(arguments)}
    return executed(name, **given)


def test_calls_of_sub_agents_that_share_an_id_are_two() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    for number, order in enumerate(("A", "B")):
        asked = trace.span("execute_tool ask", root, called("ask", f"ask:{number}", q=order))
        inner = trace.span("invoke_agent b", asked, AGENT)
        trace.span("execute_tool look", inner, called("look", "look:0", id=order))

    turn = trace.turn()

    looks = [(one["id"], one["arguments"], one["parentId"]) for one in turn["tools"][1::2]]
    assert looks == [("look:0", {"id": "A"}, "ask:0"), ("look:0#2", {"id": "B"}, "ask:1")]


def test_a_span_of_the_same_call_that_follows_it_at_once_is_a_retry() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    for order in ("A", "A", "B"):
        trace.span("execute_tool look", root, called("look", "call_0", id=order))

    turn = trace.turn()

    assert [one["arguments"] for one in turn["tools"]] == [{"id": "A"}, {"id": "B"}]


def test_a_retried_call_ends_as_its_last_attempt_did() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    attempt = called("look", "call_0", id="A")
    trace.span("execute_tool look", root, attempt | {"error.type": "Timeout"})
    trace.span("execute_tool look", root, attempt | {"gen_ai.tool.call.result": "found"})

    (call,) = trace.turn()["tools"]

    assert ("error" in call, call["result"]) == (False, "found")


def test_a_retried_call_whose_last_attempt_failed_has_failed() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    for kind in ("Timeout", "Refused"):
        failed = called("look", "call_0", id="A") | {"error.type": kind}
        trace.span("execute_tool look", root, failed)

    (call,) = trace.turn()["tools"]

    assert call["error"]["type"] == "Refused"


def test_a_result_of_mcp_that_is_an_error_is_a_failed_call() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    for failed in (True, False):
        result = {"content": [{"type": "text", "text": "no"}], "isError": failed}
        returned = {"gen_ai.tool.call.result": json.dumps(result)}
        trace.span("execute_tool look", root, called("look", f"call_{failed}") | returned)

    calls = trace.turn()["tools"]

    assert [one.get("error") for one in calls] == [{"type": "tool_error"}, None]


def test_a_run_that_goes_on_after_an_approval_in_the_same_trace_is_one_turn() -> None:
    trace = TraceBuilder()
    question = user("Refund 5")
    call = {"type": "tool_call", "id": "c1", "name": "refund", "arguments": {"id": 5}}
    asked = {"role": "assistant", "parts": [call]}
    result = {"type": "tool_call_response", "id": "c1", "response": "done"}
    first = trace.span("invoke_agent a", None, AGENT)
    trace.span("chat m", first, chat(told(question), told(asked)))
    again = trace.span("invoke_agent a", None, AGENT)
    given = told(question, asked, {"role": "tool", "parts": [result]})
    trace.span("chat m", again, chat(given, told(says("Refunded."))))

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Refund 5", "Refunded.")
    assert tools(turn) == [("c1", "refund", {"id": 5}, "done")]


@pytest.mark.parametrize(
    ("prompt", "answer"),
    [
        ("Write a title for: Refund 5", "Refunded."),
        ("Make this polite: Refunded.", "A refund."),
        ("Refund 5", "A refund."),
    ],
    ids=["beside", "about the answer", "the question again"],
)
def test_a_call_beside_an_agents_loop_does_not_answer(prompt: str, answer: str) -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    call = {"type": "tool_call", "id": "c1", "name": "refund", "arguments": {}}
    asked = [user("Refund 5"), {"role": "assistant", "parts": [call]}]
    result = {"type": "tool_call_response", "id": "c1", "response": "done"}
    returned = told(*asked, {"role": "tool", "parts": [result]})
    trace.span("chat m", root, chat(told(asked[0]), told(asked[1])))
    trace.span("chat m", root, chat(returned, told(says("Refunded."))))
    trace.span("chat m", root, chat(told(user(prompt)), told(says("A refund."))))

    turn = trace.turn()

    assert words(turn, "finalResponse") == answer
    assert intermediate(turn) == ([] if answer == "Refunded." else ["Refunded."])


@pytest.mark.parametrize(("parent", "turns"), [(None, 0), ("00000000000000ff", 1)])
def test_the_trace_of_an_mcp_server_is_no_turn(parent: str | None, turns: int) -> None:
    trace = TraceBuilder()
    request = trace.span("POST /mcp", parent, {})
    call = trace.span(
        "tools/call look", request, executed("look", **{"mcp.method.name": "tools/call"})
    )
    trace.span("chat m", call, chat(told(user("Summarise")), told(says("Short."))))

    assert len(trace.turns()) == turns
