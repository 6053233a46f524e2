"""Forms of traces published by other projects: read correctly or marked, never silently wrong."""

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from evaltap.cli.main import main
from evaltap.recorder.observation import RunStarted
from evaltap.recorder.traces.reader import observe_trace
from support.builders.span_builders import TraceBuilder, intermediate, tools, words

KIND = "openinference.span.kind"
LOGFIRE = "logfire.openai_agents"


def chat(asked: str, answer: str, *before: tuple[str, str]) -> dict[str, Any]:
    """Return the attributes of an OpenInference model span."""
    told = [*(message for turn in before for message in zip(("user", "assistant"), turn, strict=True)),
            ("user", asked)]  # fmt: skip
    attributes: dict[str, Any] = {KIND: "LLM", "llm.output_messages.0.message.role": "assistant",
                                  "llm.output_messages.0.message.content": answer}  # fmt: skip
    for number, (role, text) in enumerate(told):
        attributes[f"llm.input_messages.{number}.message.role"] = role
        attributes[f"llm.input_messages.{number}.message.content"] = text
    return attributes


def run_of(trace: TraceBuilder, root: str, model: Mapping[str, Any]) -> str:
    """Add an agent's run with a model call, and return its id."""
    agent = trace.span("assistant", root, {KIND: "AGENT", "agent.name": "assistant"})
    trace.span("chat", agent, model)
    return agent


# -- sessions ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "none", ["null", "None", "undefined", " NaN ", "nil", "N/A", "{}", '"null"']
)
@pytest.mark.parametrize(
    "attribute", ["session.id", "langfuse.session.id", "gen_ai.conversation.id"]
)
def test_a_word_for_no_session_is_none(none: str, attribute: str) -> None:
    cases = []
    for trace_id in ("a" * 32, "b" * 32):
        trace = TraceBuilder(trace_id=trace_id)
        run = {
            KIND: "AGENT",
            attribute: none,
            "user.id": none,
            "gen_ai.operation.name": "invoke_agent",
        }
        trace.span("chat", trace.span("agent", None, run), chat("Hi", "Hello."))
        cases += trace.turns()

    assert len({case["evalId"] for case in cases}) == 2
    for case in cases:
        assert case["actualConversation"][0]["capture"]["sessionId"] == "synthesized"
        assert case.get("sessionInput", {}).get("userId") != none


def test_logfire_writes_null_for_a_run_without_a_group() -> None:
    trace = TraceBuilder(LOGFIRE)
    trace.span("OpenAI Agents trace: x", None, {"group_id": "null", "logfire.msg": "x"})

    root = next(iter(trace.spans))
    model = {"logfire.msg": "y", "raw_input": json.dumps([{"role": "user", "content": "2+2?"}]),
             "response": json.dumps({"output": [{"role": "assistant", "content": "4"}]})}  # fmt: skip
    trace.span("Responses API", root, model)

    (case,) = trace.turns()

    assert case["evalId"] != "null"


# -- turns ------------------------------------------------------------------------------------------


def test_two_questions_in_one_trace_are_two_turns_of_a_session() -> None:
    trace = TraceBuilder()
    root = trace.span("chat", None, {KIND: "CHAIN", "session.id": "s1"})
    run_of(trace, root, chat("2+2?", "4."))
    run_of(trace, root, chat("4?", "Yes, that's correct!", ("2+2?", "4.")))

    first, second = trace.turns()

    turns = [case["actualConversation"][0] for case in (first, second)]
    assert [words(turn, "userContent") for turn in turns] == ["2+2?", "4?"]
    assert [words(turn, "finalResponse") for turn in turns] == ["4.", "Yes, that's correct!"]
    assert {case["evalId"] for case in (first, second)} == {"s1"}
    assert len({turn["invocationId"] for turn in turns}) == 2


def test_agents_that_ran_while_another_one_ran_are_no_turns() -> None:
    """Agents as tools, whose spans some instrumentations put beside the span of their caller."""
    trace = TraceBuilder()
    root = trace.span("workflow", None, {KIND: "CHAIN"})
    caller = run_of(trace, root, chat("Why?", "So."))
    for question in ("What is it?", "How much?"):
        run_of(trace, root, chat(question, "It is."))
    trace.spans[caller] = replace(trace.spans[caller], end_ns=trace.spans[root].end_ns)

    assert words(trace.turn(), "userContent") == "Why?"


def test_an_answer_that_only_the_agents_span_below_the_root_states_is_the_answer() -> None:
    def said(role: str, text: str) -> str:
        return json.dumps([{"role": role, "parts": [{"type": "text", "content": text}]}])

    trace = TraceBuilder()
    root = trace.span("flow", None, {"gen_ai.operation.name": "invoke_workflow"})
    for question, answer in (("2+2?", "4."), ("4?", "Yes, that's correct!")):
        trace.span(
            "invoke_agent sums",
            root,
            {
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.input.messages": said("user", question),
                "gen_ai.output.messages": said("assistant", answer),
            },
        )

    turns = [case["actualConversation"][0] for case in trace.turns()]

    assert [words(turn, "userContent") for turn in turns] == ["2+2?", "4?"]
    assert [words(turn, "finalResponse") for turn in turns] == ["4.", "Yes, that's correct!"]


def test_only_the_last_turn_of_a_trace_takes_its_failure() -> None:
    trace = TraceBuilder()
    root = trace.span("chat", None, {KIND: "CHAIN", "session.id": "s1"}, error="RuntimeError: late")
    run_of(trace, root, chat("One?", "1."))
    run_of(trace, root, chat("Two?", "2."))

    statuses = [case["actualConversation"][0]["telemetry"]["status"] for case in trace.turns()]

    assert statuses == ["ok", "error"]


def test_steps_of_a_pipeline_are_one_turn() -> None:
    trace = TraceBuilder()
    root = trace.span("Story flow", None, {KIND: "CHAIN", "session.id": "s1"})
    run_of(trace, root, chat("A story of a fox", "Outline: the fox goes home"))
    run_of(trace, root, chat("Write this: Outline: the fox goes home", "Once upon a time"))

    turn = trace.turn()

    assert words(turn, "userContent") == "A story of a fox"
    assert words(turn, "finalResponse") == "Once upon a time"


def test_agents_at_the_same_time_are_one_turn() -> None:
    trace = TraceBuilder()
    root = trace.span("fan out", None, {KIND: "CHAIN", "session.id": "s1"})
    run_of(trace, root, chat("To French", "Bonjour"))
    beside = trace.beside(next(id_ for id_, s in trace.spans.items() if s.parent_id == root),
                          "assistant", {KIND: "AGENT", "agent.name": "other"}, scope="test")  # fmt: skip
    trace.span("chat", beside, chat("To Spanish", "Hola"))

    assert len(trace.turns()) == 1


def test_a_gateways_empty_run_beside_a_fuller_one_is_no_turn() -> None:
    trace = TraceBuilder()
    trace.span("invoke_agent helm-agent", "f" * 16, {"gen_ai.operation.name": "invoke_agent"})
    agent = trace.span("agent", "e" * 16, {KIND: "AGENT"})
    trace.span("chat", agent, chat("List releases", "There are two."))

    assert words(trace.turn(), "userContent") == "List releases"


def test_an_empty_run_that_failed_stays_a_turn() -> None:
    trace = TraceBuilder()
    trace.span(
        "invoke_agent a", None, {"gen_ai.operation.name": "invoke_agent"}, error="ValueError: no"
    )
    agent = trace.span("agent", None, {KIND: "AGENT"})
    trace.span("chat", agent, chat("List releases", "There are two."))

    assert len(trace.turns()) == 2


# -- answers ----------------------------------------------------------------------------------------


def test_an_agents_plain_text_output_is_its_answer() -> None:
    trace = TraceBuilder("openinference.instrumentation.smolagents")
    root = trace.span("CodeAgent.run", None, {
        KIND: "AGENT", "output.value": "Paris", "output.mime_type": "text/plain",
        "input.value": json.dumps({"task": "Capital of France?", "stream": False, "reset": True}),
    })  # fmt: skip
    said = "Thought: I know it. <code>final_answer('Paris')</code>"
    trace.span("LiteLLMModel", root, chat("New task:\nCapital of France?", said))

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == (
        "Capital of France?",
        "Paris",
    )
    assert intermediate(turn) == [said]


def test_what_the_run_states_is_the_answer_where_the_last_model_call_asked_for_a_tool() -> None:
    trace = TraceBuilder()
    root = trace.span("run", None, {KIND: "CHAIN", "session.id": "s", "output.value": "All done!"})
    model = chat("Fix it", "")
    model |= {"llm.output_messages.0.message.tool_calls.0.tool_call.function.name": "finish",
              "llm.output_messages.0.message.tool_calls.0.tool_call.function.arguments": "{}"}  # fmt: skip
    trace.span("chat", root, model)

    assert words(trace.turn(), "finalResponse") == "All done!"


# -- tool calls -------------------------------------------------------------------------------------


def test_smolagents_wrapper_around_arguments_is_taken_off() -> None:
    trace = TraceBuilder("openinference.instrumentation.smolagents")
    root = trace.span("CodeAgent.run", None, {KIND: "AGENT", "input.value": "Find it"})
    given = {"args": [], "kwargs": {"query": "foxes"}, "sanitize_inputs_outputs": False}
    trace.span("SearchTool", root, {KIND: "TOOL", "tool.name": "search",
                                    "input.value": json.dumps(given), "output.value": "3"})  # fmt: skip

    assert [call[1:3] for call in tools(trace.turn())] == [("search", {"query": "foxes"})]


def langfuse(kind: str, input_: object, output: object) -> dict[str, Any]:
    return {"langfuse.observation.type": kind, "langfuse.observation.input": json.dumps(input_),
            "langfuse.observation.output": json.dumps(output)}  # fmt: skip


def test_langfuse_spans_are_tools_where_the_model_asked_for_them() -> None:
    call = {"id": "c1", "type": "function",
            "function": {"name": "Web-Search", "arguments": '{"query": "foxes"}'}}  # fmt: skip
    asks = {"role": "assistant", "content": "", "additional_kwargs": {"tool_calls": [call]}}
    trace = TraceBuilder("langfuse-sdk")
    root = trace.span(
        "LangGraph",
        None,
        langfuse("span", {"messages": [{"role": "user", "content": "Foxes?"}]}, None),
    )
    trace.span(
        "ChatOpenAI", root, langfuse("generation", [{"role": "user", "content": "Foxes?"}], asks)
    )
    node = trace.span("tools", root, langfuse("span", {"messages": []}, {"messages": []}))
    trace.span("Web-Search", node, langfuse("span", {"query": "foxes"}, "three foxes"))
    trace.span("ChatOpenAI", root, langfuse("generation", [{"role": "user", "content": "Foxes?"}],
                                            {"role": "assistant", "content": "Three."}))  # fmt: skip

    turn = trace.turn()

    assert tools(turn) == [("c1", "Web-Search", {"query": "foxes"}, "three foxes")]
    assert words(turn, "finalResponse") == "Three."


def test_the_structured_response_of_a_graph_that_langfuse_saw_is_its_answer() -> None:
    asked = [{"role": "user", "content": "Foxes?"}]
    call = {"id": "c1", "type": "tool_call", "name": "Verdict", "args": {"count": 3}}
    asks = {"role": "assistant", "content": "", "tool_calls": [call]}
    left = {"messages": [*asked, asks], "structured_response": {"count": 3}}
    trace = TraceBuilder("langfuse-sdk")
    root = trace.span("desk", None, langfuse("chain", {"messages": asked}, left))
    trace.span("ChatOpenAI", root, langfuse("generation", asked, asks))

    assert words(trace.turn(), "finalResponse") == '{"count":3}'


def test_a_langfuse_generation_around_a_whole_run_is_no_model_call() -> None:
    asked = [{"role": "user", "content": "Foxes?"}]
    call = {"id": "c1", "type": "function", "function": {"name": "search", "arguments": "{}"}}
    trace = TraceBuilder("langfuse-sdk")
    root = trace.span("handle-message", None, langfuse("generation", "Foxes?", "Three."))
    trace.span("openai", root, langfuse("generation", asked,
                                        {"role": "assistant", "content": "Let me look.",
                                         "tool_calls": [call]}))  # fmt: skip
    trace.span("search", root, langfuse("tool", {}, "three foxes"))
    trace.span("openai", root, langfuse("generation", asked,
                                        {"role": "assistant", "content": "Three."}))  # fmt: skip

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Foxes?", "Three.")
    assert intermediate(turn) == ["Let me look."]
    assert tools(turn) == [("c1", "search", {}, "three foxes")]


def test_a_langfuse_export_keeps_what_other_instrumentation_wrote_on_the_span(
    tmp_path: Path,
) -> None:
    def observation(key: str, kind: str, name: str, parent: str | None, **more: Any) -> Any:
        times = {"startTime": "2026-01-01T00:00:00Z", "endTime": "2026-01-01T00:00:01Z"}
        about = {"id": key, "traceId": "t1", "type": kind, "name": name}
        return {**about, "parentObservationId": parent, **times, **more}

    written = {"ai.operationId": "ai.toolCall", "ai.toolCall.name": "search",
               "ai.toolCall.id": "c1", "ai.toolCall.args": '{"q": "foxes"}'}  # fmt: skip
    path = tmp_path / "trace.json"
    path.write_text(json.dumps({
        "trace": {"id": "t1", "sessionId": "s1"},
        "observations": [
            observation("o1", "SPAN", "chat", None, input="Foxes?", output="Three."),
            observation("o2", "TOOL", "ai.toolCall", "o1", input={"q": "foxes"}, output="three",
                        metadata=json.dumps({"attributes": written})),
        ],
    }))  # fmt: skip
    out = tmp_path / "out.evalset.json"

    assert main(["record", "otlp", str(path), "--out", str(out)]) == 0

    (case,) = json.loads(out.read_text())["evalCases"]
    assert tools(case["actualConversation"][0]) == [("c1", "search", {"q": "foxes"}, "three")]


def test_parameters_and_return_values_of_google_genais_functions_are_read() -> None:
    trace = TraceBuilder("opentelemetry.instrumentation.google_genai")
    root = trace.span("invoke_agent a", None, {"gen_ai.operation.name": "invoke_agent"})
    trace.span("execute_tool weather", root, {
        "gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "weather",
        "code.function.parameters.city.value": "Oslo", "code.function.parameters.city.type": "str",
        "code.function.return.value": "rain",
    })  # fmt: skip

    assert [call[1:] for call in tools(trace.turn())] == [("weather", {"city": "Oslo"}, "rain")]


def test_input_and_output_values_stand_in_for_a_tools_own_attributes() -> None:
    trace = TraceBuilder("ai.koog")
    root = trace.span("invoke_agent a", None, {"gen_ai.operation.name": "invoke_agent"})
    trace.span("tool", root, {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": "add",
                              "input.value": '{"a": 1}', "output.value": "2"})  # fmt: skip

    assert [call[1:] for call in tools(trace.turn())] == [("add", {"a": 1}, 2)]


def test_tools_that_run_at_the_provider_are_calls_and_do_not_hide_the_answer() -> None:
    trace = TraceBuilder(LOGFIRE)
    root = trace.span("Agent run: a", None, {"logfire.msg": "x", "name": "a"})
    searched = {"type": "file_search_call", "id": "fs_1", "queries": ["logfire"], "results": None}
    events = [
        {"event.name": "gen_ai.user.message", "role": "user", "content": "Who made Logfire?"},
        {"event.name": "gen_ai.unknown", "role": "unknown", "data": searched,
         "content": "file_search_call\n\nSee JSON for details"},
        {"event.name": "gen_ai.assistant.message", "role": "assistant", "content": "Pydantic."},
    ]  # fmt: skip
    trace.span("Responses API", root, {"logfire.msg": "y", "events": json.dumps(events)})

    turn = trace.turn()

    assert [call[:3] for call in tools(turn)] == [("fs_1", "file_search", {"queries": ["logfire"]})]
    assert words(turn, "finalResponse") == "Pydantic."


def test_text_that_was_flattened_block_by_block_is_read() -> None:
    trace = TraceBuilder("strands.telemetry.tracer")
    root = trace.span("invoke_agent", None, {"gen_ai.operation.name": "invoke_agent"})
    trace.span("chat", root, {
        "gen_ai.operation.name": "chat",
        "gen_ai.prompt.0.role": "user", "gen_ai.prompt.0.content.0.text": "Hi",
        "gen_ai.completion.0.role": "assistant", "gen_ai.completion.0.content.0.text": "Hello.",
    })  # fmt: skip

    turn = trace.turn()

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")


def test_a_result_without_its_call_marks_the_tools_as_ambiguous() -> None:
    trace = TraceBuilder()
    root = trace.span("agent", None, {KIND: "AGENT", "session.id": "s"})
    trace.span("chat", root, chat("Foxes?", "Let me see."))
    later = chat("Foxes?", "Three.")
    later |= {"llm.input_messages.1.message.role": "tool",
              "llm.input_messages.1.message.tool_call_id": "c1",
              "llm.input_messages.1.message.content": "three foxes"}  # fmt: skip
    trace.span("chat", root, later)

    assert trace.turn()["capture"] == {"tools": "ambiguous"}


@pytest.mark.parametrize(
    ("span", "agent"),
    [
        ("agent_run [hello_agent]", "hello_agent"),
        ("run.6f8d-11", None),
        ("ClaudeAgentSDK.query", None),
        ("invoke_agent", None),
        ("invoke_agent support desk", "support desk"),
    ],
)
def test_an_operation_is_not_taken_for_an_agents_name(span: str, agent: str | None) -> None:
    trace = TraceBuilder()
    root = trace.span(span, None, {"gen_ai.operation.name": "invoke_agent", "session.id": "s"})
    trace.span("chat", root, chat("Hi", "Hello."))

    ((start, *_),) = observe_trace(trace.spans.values())
    assert isinstance(start, RunStarted)
    assert start.agent_name == agent


# -- files ------------------------------------------------------------------------------------------

SPAN = {
    "traceId": "a" * 32, "spanId": "1" * 16, "name": "agent", "startTimeUnixNano": "1000",
    "endTimeUnixNano": "2000", "attributes": [
        {"key": KIND, "value": {"stringValue": "AGENT"}},
        {"key": "session.id", "value": {"stringValue": "s1"}},
        {"key": "input.value", "value": {"stringValue": "Hi"}},
        {"key": "output.value", "value": {"stringValue": "Hello."}},
    ],
}  # fmt: skip


def request(
    *spans: Mapping[str, Any], key: str = "resourceSpans", scopes: str = "scopeSpans"
) -> str:
    return json.dumps({key: [{scopes: [{"spans": spans}]}]})


def recorded(path: Path, text: str) -> dict[str, Any]:
    """Record the text as a file; the only turn."""
    source, out = path / "t.json", path / "out.evalset.json"
    source.write_text(text)
    assert main(["record", "otlp", str(source), "--out", str(out)]) == 0
    (case,) = json.loads(out.read_text())["evalCases"]
    (turn,) = case["actualConversation"]
    assert case["evalId"] == "s1"
    found: dict[str, Any] = turn
    return found


JAEGER = {"data": [{"traceID": "a" * 32, "processes": {"p1": {"serviceName": "desk", "tags": []}}, "spans": [
    {"traceID": "a" * 32, "spanID": "1" * 16, "operationName": "agent", "references": [], "processID": "p1",
     "startTime": 1000, "duration": 5, "logs": [],
     "tags": [{"key": KIND, "type": "string", "value": "AGENT"},
              {"key": "session.id", "type": "string", "value": "s1"},
              {"key": "input.value", "type": "string", "value": "Hi"},
              {"key": "output.value", "type": "string", "value": "Hello."}]},
]}], "total": 0, "limit": 0, "errors": None}  # fmt: skip
SDK: dict[str, Any] = {"name": "agent", "context": {"trace_id": "0x" + "a" * 32, "span_id": "0x" + "1" * 16},
       "parent_id": None, "start_time": "2026-01-01T10:00:00.000000Z",
       "end_time": "2026-01-01T10:00:01.000000Z", "status": {"status_code": "UNSET"}, "events": [],
       "attributes": {KIND: "AGENT", "session.id": "s1", "input.value": "Hi", "output.value": "Hello."},
       "resource": {"attributes": {"service.name": "desk"}}}  # fmt: skip

OBSERVATION: dict[str, Any] = {
    "id": "o-1", "traceId": "t-1", "type": "SPAN", "name": "agent", "parentObservationId": None,
    "startTime": "2026-01-01T10:00:00.000Z", "endTime": "2026-01-01T10:00:01.000Z",
    "input": "Hi", "output": "Hello.",
}  # fmt: skip
LANGFUSE: dict[str, Any] = {"id": "t-1", "sessionId": "s1", "timestamp": "2026-01-01T10:00:00.000Z",
       "input": "Hi", "output": "Hello.", "observations": [OBSERVATION]}  # fmt: skip
CALLED = {**OBSERVATION, "id": "o-2", "type": "TOOL", "parentObservationId": "o-1"}
ONLY_A_MODEL = {
    **OBSERVATION, "type": "GENERATION", "model": "m", "usage": {"input": 3, "output": 1},
    "input": [{"role": "user", "content": "Hi"}], "output": {"role": "assistant", "content": "Hello."},
}  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [
        request(SPAN, key="batches", scopes="instrumentationLibrarySpans"),
        json.dumps(JAEGER),
        json.dumps([SDK]),
        f"{json.dumps(SDK)}\n",
        json.dumps({"trace": json.loads(request(SPAN)), "status": "complete"}),
        f"{json.dumps(SDK, indent=4)}\n{json.dumps(SDK, indent=4)}\n",
        json.dumps(LANGFUSE),
        json.dumps({"trace": LANGFUSE, "observations": [OBSERVATION]}),
        json.dumps([LANGFUSE]),
        json.dumps({**LANGFUSE, "observations": [ONLY_A_MODEL]}),
        json.dumps([{**OBSERVATION, "sessionId": "s1"}]),
        json.dumps({"data": [{**OBSERVATION, "sessionId": "s1"}], "meta": {"cursor": None}}),
        "\n".join(json.dumps({**one, "sessionId": "s1"}) for one in (OBSERVATION, CALLED)),
        json.dumps({"data": [{**ONLY_A_MODEL, "sessionId": "s1"}], "meta": {"cursor": None}}),
    ],
    ids=[
        "tempo",
        "jaeger",
        "list-of-sdk-spans",
        "one-sdk-span",
        "tempo-2",
        "console-exporter",
        "langfuse-trace",
        "langfuse-pair",
        "langfuse-list",
        "langfuse-without-a-run",
        "langfuse-observations",
        "langfuse-response",
        "langfuse-lines",
        "langfuse-response-without-a-run",
    ],
)
def test_spans_are_read_from_other_containers(tmp_path: Path, text: str) -> None:
    turn = recorded(tmp_path, text)

    assert (words(turn, "userContent"), words(turn, "finalResponse")) == ("Hi", "Hello.")


def test_a_last_line_that_was_cut_off_costs_only_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    whole = request(SPAN)

    recorded(tmp_path, f"{whole}\n{whole[:40]}")

    assert "t.json: line 2: not valid JSON" in (error := capsys.readouterr().err)
    assert "the last line: it is truncated" in error


def test_a_span_without_a_trace_costs_only_itself(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    recorded(tmp_path, request(SPAN, {**SPAN, "traceId": "0" * 32, "spanId": "2" * 16}))

    assert "skipped" in (error := capsys.readouterr().err)
    assert "trace id is all zeros" in error


def test_a_file_without_a_run_of_an_agent_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "t.json"
    source.write_text(request({**SPAN, "attributes": []}))

    assert main(["record", "otlp", str(source), "--out", str(tmp_path / "out.json")]) == 2
    assert "1 span in 1 trace, but no agent runs" in capsys.readouterr().err
    assert not (tmp_path / "out.json").exists()


def test_json_lines_of_something_else_are_no_transcript(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    source = tmp_path / "t.jsonl"
    source.write_text('{"type": "event", "message": 1}\n')

    assert main(["record", "claude-code", str(source), "--out", str(tmp_path / "out.json")]) == 2
    assert "is not a transcript" in capsys.readouterr().err
