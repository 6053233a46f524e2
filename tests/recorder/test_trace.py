"""From the spans of one trace to its runs: structure, evidence, and what is never guessed."""

import json
from dataclasses import replace
from typing import Any

import pytest

from evaltap.recorder.observation import ModelCalled
from evaltap.recorder.traces.reader import observe_trace
from support.builders.span_builders import TRACE, TraceBuilder, intermediate, tools, words
from support.builders.spans_of_agents import AGENT, OPERATION, chat, executed, says, told, user


def calls(*made: tuple[str | None, str, dict[str, Any]]) -> dict[str, Any]:
    return {
        "role": "assistant",
        "parts": [
            {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
            for call_id, name, arguments in made
        ],
    }


def answers(call_id: str, result: Any) -> dict[str, Any]:
    return {
        "role": "tool",
        "parts": [{"type": "tool_call_response", "id": call_id, "response": result}],
    }


def test_a_runner_with_an_operation_name_of_tomorrow_is_the_root_of_one_turn() -> None:
    trace = TraceBuilder()
    root = trace.span("run", None, {OPERATION: "orchestrate", "gen_ai.conversation.id": "s1"})
    agent = trace.span("invoke_agent a", root, AGENT)
    trace.span("chat m", agent, chat(told(user("Hi")), told(says("Hello."))))

    (case,) = trace.turns()

    assert case["evalId"] == "s1"
    (turn,) = case["actualConversation"]
    assert turn["telemetry"]["rootSpanId"] == root
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")


def test_creating_an_agent_is_no_run() -> None:
    trace = TraceBuilder()
    trace.span("create_agent a", None, {OPERATION: "create_agent", "gen_ai.agent.name": "a"})

    assert trace.turns() == []


def test_a_trace_without_agents_is_no_run() -> None:
    trace = TraceBuilder()
    root = trace.span("GET /", None, {"http.route": "/"})
    trace.span("SELECT", root, {"db.system": "sqlite"})
    trace.span("embeddings m", root, {OPERATION: "embeddings", "gen_ai.request.model": "m"})

    assert trace.turns() == []


def test_a_plain_chat_application_is_one_turn_rooted_in_its_top_span() -> None:
    trace = TraceBuilder(**{"service.name": "shop"})
    root = trace.span("POST /chat", None, {"http.route": "/chat"})
    trace.span("chat m", root, chat(told(user("Hi")), told(calls(("c1", "now", {})))))
    trace.span("chat m", root, chat(told(user("Hi"), answers("c1", "noon")), told(says("Noon."))))

    (case,) = trace.turns()

    (turn,) = case["actualConversation"]
    assert turn["telemetry"]["rootSpanId"] == root
    assert tools(turn) == [("c1", "now", {}, "noon")]
    assert words(turn, "finalResponse") == "Noon."
    assert case["sessionInput"] == {"appName": "shop"}
    assert case["evalId"] == f"{TRACE}-{root}"
    assert turn["capture"] == {"sessionId": "synthesized"}


def test_calls_that_lost_their_common_parent_are_one_incomplete_turn() -> None:
    trace = TraceBuilder()
    lost = "ff" * 8
    trace.span("chat m", lost, chat(told(user("Hi")), told(calls(("c1", "now", {})))))
    trace.span("chat m", lost, chat(told(user("Hi"), answers("c1", "noon")), told(says("Noon."))))

    turn = trace.turn()

    assert (turn["telemetry"]["status"], turn["telemetry"]["rootSpanId"]) == ("incomplete", lost)
    assert tools(turn) == [("c1", "now", {}, "noon")]
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Noon.")


def test_one_chat_below_a_span_that_nobody_exported_is_a_turn_of_its_own() -> None:
    trace = TraceBuilder()
    trace.span("chat m", "ff" * 8, chat(told(user("Hi")), told(says("Hello."))))

    assert trace.turn()["telemetry"]["status"] == "ok"


def test_two_runs_side_by_side_are_two_turns() -> None:
    trace = TraceBuilder()
    top = trace.span("batch", None, {})
    for number in (1, 2):
        agent = trace.span("invoke_agent a", top, AGENT)
        trace.span("chat m", agent, chat(told(user(f"Q{number}")), told(says(f"A{number}"))))

    turns = [case["actualConversation"][0] for case in trace.turns()]

    assert [words(turn, "userContent") for turn in turns] == ["Q1", "Q2"]


def test_a_run_under_an_unseen_parent_is_a_run() -> None:
    trace = TraceBuilder()
    trace.span("invoke_agent a", "ff" * 8, AGENT)

    assert len(trace.turns()) == 1


def test_the_session_of_a_sub_agent_is_not_the_session() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent boss", None, {OPERATION: "invoke_agent"})
    tool = trace.span("execute_tool ask", root, executed("ask", **{"gen_ai.tool.call.id": "n1"}))
    nested = trace.span("invoke_agent sub", tool, {**AGENT, "gen_ai.conversation.id": "random"})
    trace.span("chat m", nested, chat(told(user("sub question")), told(says("sub answer"))))

    (case,) = trace.turns()

    (turn,) = case["actualConversation"]
    assert turn["capture"]["sessionId"] == "synthesized"
    assert turn["capture"]["userContent"] == "missing"
    assert turn["capture"]["finalResponse"] == "missing"
    assert intermediate(turn) == []


def test_an_mcp_session_is_not_a_conversation() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, {OPERATION: "invoke_agent", "mcp.session.id": "m"})
    trace.span("tools/list", root, {"mcp.method.name": "tools/list", "mcp.session.id": "m"})

    (case,) = trace.turns()

    assert case["actualConversation"][0]["capture"]["sessionId"] == "synthesized"
    assert "tools" not in case["actualConversation"][0]


def test_a_call_seen_as_tool_and_as_mcp_client_and_server_counts_once() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    outer = trace.span(
        "execute_tool f",
        root,
        executed("f", **{"gen_ai.tool.call.id": "c1", "gen_ai.tool.call.arguments": '{"a": 1}'}),
    )
    mcp = {"mcp.method.name": "tools/call", "gen_ai.tool.name": "f"}
    client = trace.span("tools/call f", outer, {**mcp, "gen_ai.tool.call.result": '"ok"'})
    trace.span("tools/call f", client, {**mcp, "error.type": "tool_error"})

    turn = trace.turn()

    assert tools(turn) == [("c1", "f", {"a": 1}, "ok")]
    assert turn["tools"][0]["error"] == {"type": "tool_error"}


def test_an_mcp_call_without_another_span_is_a_tool_call() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    trace.span("tools/call get_weather", root, {"mcp.method.name": "tools/call"})

    assert [tool["name"] for tool in trace.turn()["tools"]] == ["get_weather"]


def test_a_model_call_seen_by_two_layers_counts_once() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    usage = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}
    outer = trace.span("wrapper", root, {**chat(told(user("Hi")), None), **usage})
    trace.span("chat m", outer, {**chat(told(user("Hi")), told(says("Hello."))), **usage})

    turn = trace.turn()

    assert turn["telemetry"]["inputTokens"] == 10
    assert (words(turn, "finalResponse"), intermediate(turn)) == ("Hello.", [])


def test_two_spans_of_one_response_count_once() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    same = {"gen_ai.response.id": "r1", "gen_ai.usage.input_tokens": 10}
    for _ in range(2):
        trace.span("chat m", root, {**chat(told(user("Hi")), told(says("Hello."))), **same})

    turn = trace.turn()

    assert (turn["telemetry"]["inputTokens"], intermediate(turn)) == (10, [])


USAGE = {"gen_ai.usage.input_tokens": 10, "gen_ai.usage.output_tokens": 5}


OPENINFERENCE_USAGE = {"llm.token_count.prompt": 10, "llm.token_count.completion": 5}


def test_a_model_call_and_a_tool_call_that_two_instrumentations_saw_count_once() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    asked = trace.span(
        "chat m", root, {**chat(told(user("Hi")), told(calls(("c1", "f", {"a": 1})))), **USAGE}
    )
    trace.beside(asked, "llm", {"openinference.span.kind": "LLM", **OPENINFERENCE_USAGE})
    made = trace.span("execute_tool f", root, executed("f", **{"gen_ai.tool.call.id": "c1"}))
    kind = {"openinference.span.kind": "TOOL", "tool.name": "f", "output.value": "done"}
    trace.beside(made, "f", kind)
    last = chat(told(user("Hi"), answers("c1", "done")), told(says("Yes.")))
    trace.span("chat m", root, {**last, **USAGE})

    turn = trace.turn()

    assert tools(turn) == [("c1", "f", {"a": 1}, "done")]
    assert (turn["telemetry"]["inputTokens"], words(turn, "finalResponse")) == (20, "Yes.")


def test_what_a_dropped_twin_holds_belongs_to_the_span_that_is_kept() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    tool = trace.span("execute_tool ask", root, executed("ask", **{"gen_ai.tool.call.id": "c1"}))
    nested = trace.span("invoke_agent b", tool, {**AGENT, "gen_ai.agent.name": "b"})
    trace.span("execute_tool look", nested, executed("look"))
    twin = trace.beside(tool, "ask", {"openinference.span.kind": "TOOL", "tool.name": "ask"})
    trace.spans[nested] = replace(trace.spans[nested], parent_id=twin)

    turn = trace.turn()

    ask, look = turn["tools"]
    assert (ask["name"], look["name"], look["agent"]) == ("ask", "look", "b")
    assert look["parentId"] == ask["id"] == "c1"


@pytest.mark.parametrize(
    ("other", "scope"),
    [
        ({OPERATION: "chat"}, "another"),
        ({OPERATION: "chat", **USAGE, "gen_ai.usage.output_tokens": 6}, "another"),
        ({OPERATION: "chat", **USAGE}, "test"),
        ({**chat(told(user("Hi")), told(says("No."))), **USAGE}, "another"),
    ],
    ids=["nothing in common", "other tokens", "one instrumentation", "other words"],
)
def test_two_model_calls_at_the_same_time_are_two(other: dict[str, Any], scope: str) -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    first = trace.span("chat m", root, {**chat(told(user("Hi")), told(says("Yes."))), **USAGE})
    trace.beside(first, "chat m", other, scope=scope)

    (run,) = [list(run) for run in observe_trace(list(trace.spans.values()), [])]
    assert sum(isinstance(observation, ModelCalled) for observation in run) == 2


def test_parallel_executions_of_one_tool_that_two_instrumentations_saw_stay_two() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    first = trace.span("execute_tool f", root, executed("f", **{"gen_ai.tool.call.id": "c1"}))
    trace.beside(
        first, "execute_tool f", executed("f", **{"gen_ai.tool.call.id": "c2"}), scope="test"
    )
    for _ in range(2):
        trace.beside(first, "f", {"openinference.span.kind": "TOOL", "tool.name": "f"})

    assert [tool["id"] for tool in trace.turn()["tools"]] == ["c1", "c2"]


def test_the_agents_of_a_workflow_are_one_turn_and_building_it_is_none() -> None:
    trace = TraceBuilder(scope="agent_framework")
    trace.span("workflow.build", None, {"workflow.id": "w1"})
    run = trace.span("workflow.run", None, {"workflow.id": "w1"})
    for name in ("writer", "critic"):
        executor = trace.span("executor.process " + name, run, {"executor.id": name})
        agent = trace.span("invoke_agent " + name, executor, {**AGENT, "gen_ai.agent.name": name})
        trace.span("chat m", agent, chat(told(user("Hi")), told(says("By " + name))))

    turn = trace.turn()

    assert turn["telemetry"]["rootSpanId"] == run
    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "By critic")


def test_parallel_calls_keep_the_models_order_whatever_their_spans_do() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    asked = calls(("c1", "f", {"n": 1}), ("c2", "g", {}), ("c3", "f", {"n": 3}))
    trace.span("chat m", root, chat(told(user("Go")), told(asked)))
    for call_id, name in (("c3", "f"), ("c1", "f"), ("c2", "g")):
        trace.span("execute_tool", root, executed(name, **{"gen_ai.tool.call.id": call_id}))

    assert [tool["id"] for tool in trace.turn()["tools"]] == ["c1", "c2", "c3"]


def test_a_span_without_call_id_is_matched_by_name_and_arguments() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    asked = calls(("c1", "f", {"n": 1}), ("c2", "f", {"n": 2}))
    trace.span("chat m", root, chat(told(user("Go")), told(asked)))
    for number in (2, 1):
        arguments = {"gen_ai.tool.call.arguments": json.dumps({"n": number})}
        result = {"gen_ai.tool.call.result": f"result {number}"}
        trace.span("execute_tool f", root, executed("f", **arguments, **result))

    assert tools(trace.turn()) == [
        ("c1", "f", {"n": 1}, "result 1"),
        ("c2", "f", {"n": 2}, "result 2"),
    ]


def test_a_call_without_id_anywhere_says_so_and_invents_none() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    trace.span("execute_tool f", root, executed("f"))

    (tool,) = trace.turn()["tools"]

    assert "id" not in tool
    assert tool["capture"] == {"arguments": "missing", "id": "missing", "result": "missing"}


def test_a_call_that_nobody_executed_is_kept_without_a_result() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    trace.span("chat m", root, chat(told(user("Go")), told(calls(("c1", "approve", {"n": 1})))))

    turn = trace.turn()

    assert tools(turn) == [("c1", "approve", {"n": 1}, None)]
    assert turn["tools"][0]["capture"] == {"result": "missing"}
    assert turn["capture"] == {"finalResponse": "missing"}


def test_earlier_turns_in_the_history_are_not_this_turns_calls() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    history = (user("Before"), calls(("c0", "old", {})), answers("c0", "x"), says("Done."))
    trace.span("chat m", root, chat(told(*history, user("Now")), told(says("Hello."))))

    turn = trace.turn()

    assert (words(turn, "userContent"), tools(turn), intermediate(turn)) == ("Now", [], [])


def test_words_that_only_the_next_call_was_told_are_still_seen() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    asked = calls(("c1", "f", {"n": 1}))
    asked["parts"].insert(0, {"type": "text", "content": "Let me see."})
    trace.span("chat m", root, chat(told(user("Go")), None))
    trace.span("chat m", root, chat(told(user("Go"), asked, answers("c1", "ok")), None))

    turn = trace.turn()

    assert intermediate(turn) == ["Let me see."]
    assert tools(turn) == [("c1", "f", {"n": 1}, "ok")]
    assert "finalResponse" not in turn
    assert turn["capture"] == {"finalResponse": "missing"}


def test_an_earlier_message_is_never_promoted_to_the_final_response() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    trace.span("chat m", root, chat(told(user("Go")), told(says("First."))))
    trace.span("chat m", root, chat(told(user("Go"), says("First.")), None))

    turn = trace.turn()

    assert (words(turn, "finalResponse"), intermediate(turn)) == (None, ["First."])


def test_a_run_that_says_ok_although_its_last_model_call_failed_is_an_error() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    trace.span("chat m", root, chat(told(user("Go")), told(says("Working on it."))))
    trace.span("chat m", root, chat(told(user("Go")), None), error="TimeoutError: slow")

    turn = trace.turn()

    assert turn["telemetry"]["status"] == "error"
    assert turn["telemetry"]["error"] == {"type": "TimeoutError", "message": "slow"}
    assert words(turn, "finalResponse") is None
    assert "finalResponse" not in turn.get("capture", {})


def test_a_model_call_that_failed_and_was_tried_again_fails_nothing() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    trace.span("chat m", root, chat(told(user("Go")), None), error="RateLimitError: wait")
    trace.span("chat m", root, chat(told(user("Go")), told(says("Hello."))))

    turn = trace.turn()

    assert (turn["telemetry"]["status"], words(turn, "finalResponse")) == ("ok", "Hello.")


@pytest.mark.parametrize(
    ("given", "flaw"),
    [
        ('[{"role": "user", "parts": [{"type": "te', "truncated"),
        ("__REDACTED__", "redacted"),
        ('[{"role": "user", "parts": [{"type": "text"}]}]', "missing"),
    ],
)
def test_content_that_cannot_be_used_is_reported_and_not_guessed(given: str, flaw: str) -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    output = given.replace('"user"', '"assistant"')
    trace.span("chat m", root, chat(given, output))

    turn = trace.turn()

    assert turn["capture"] == {"userContent": flaw, "finalResponse": flaw}
    assert "userContent" not in turn


def test_cut_off_arguments_are_truncated_and_those_of_the_model_are_taken() -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    cut = {"gen_ai.tool.call.arguments": '{"n": [1, 2'}
    trace.span("execute_tool f", root, executed("f", **cut, **{"gen_ai.tool.call.id": "c0"}))
    trace.span("chat m", root, chat(told(user("Go")), told(calls(("c1", "f", {"n": [1, 2]})))))
    trace.span("execute_tool f", root, executed("f", **cut, **{"gen_ai.tool.call.id": "c1"}))

    first, second = trace.turn()["tools"]

    assert first["capture"] == {"arguments": "truncated", "result": "missing"}
    assert second["arguments"] == {"n": [1, 2]}
    assert second["capture"] == {"result": "missing"}


@pytest.mark.parametrize("end_ns", [0, 1])
def test_a_span_without_an_end_or_with_one_before_its_start_took_no_known_time(end_ns: int) -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    call = trace.span("execute_tool f", root, executed("f"))
    trace.span("chat m", root, chat(told(user("Hi")), told(says("Hello."))))
    for one in (root, call):
        trace.spans[one] = replace(trace.spans[one], end_ns=end_ns)

    turn = trace.turn()

    assert "latencyMs" not in turn["telemetry"]
    assert "durationMs" not in turn["tools"][0]


@pytest.mark.parametrize("has_ids", [True, False])
@pytest.mark.parametrize("skews", [(30, 0), (-30, 0), (0, 30), (0, -30), (-30, -30), (30, 30)])
def test_tools_on_a_machine_with_another_clock_stay_where_the_model_called_them(
    skews: tuple[int, int], has_ids: bool
) -> None:
    trace = TraceBuilder()
    root = trace.span("invoke_agent a", None, AGENT)
    history = [user("Go")]
    for number, skew in enumerate(skews, start=1):
        asked = calls((f"c{number}", f"f{number}", {"n": number}))
        trace.span("chat m", root, chat(told(*history), told(asked)))
        known = {"gen_ai.tool.call.id": f"c{number}"} if has_ids else {}
        arguments = json.dumps({"n": number})
        call = executed(f"f{number}", **{"gen_ai.tool.call.arguments": arguments}, **known)
        span = trace.spans[trace.span(f"execute_tool f{number}", root, call)]
        shifted = replace(
            span, start_ns=span.start_ns + skew * 10**9, end_ns=span.end_ns + skew * 10**9
        )
        trace.spans[span.span_id] = shifted
        history += [asked, answers(f"c{number}", number)]
    trace.span("chat m", root, chat(told(*history), told(says("Done."))))

    turn = trace.turn()

    assert tools(turn) == [("c1", "f1", {"n": 1}, 1), ("c2", "f2", {"n": 2}, 2)]
    starts = [call["startTime"] for call in turn["tools"]]
    assert turn["creationTimestamp"] < starts[0] < starts[1] < turn["creationTimestamp"] + 1
