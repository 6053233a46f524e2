"""The Google ADK plugin and ADK's own spans tell the same turns of a real ADK."""

import asyncio
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import pytest
from google.adk.tools.agent_tool import AgentTool
from opentelemetry import trace
from opentelemetry._logs import get_logger_provider, set_logger_provider
from opentelemetry.context import Context
from opentelemetry.sdk._logs import LoggerProvider
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from evaltap.recorder.plugins.adk import EvaltapPlugin
from evaltap.recorder.spans import CaseLogProcessor, CaseSpanProcessor
from inline_recorder import InlineRecorder
from scripted_adk import (
    Conversation,
    call,
    flaky,
    get_order,
    get_weather,
    say,
    scripted,
    soft,
)
from span_builders import intermediate, tools, words


class Switch(SpanProcessor):
    """Passes spans on to the processor of the test at hand: ADK knows one provider only."""

    target: SpanProcessor | None = None

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        if self.target is not None:
            self.target.on_start(span, parent_context)

    def on_end(self, span: ReadableSpan) -> None:
        if self.target is not None:
            self.target.on_end(span)


class LogSwitch:
    """The same for log records."""

    target: CaseLogProcessor | None = None

    def on_emit(self, log_record: Any) -> None:
        if self.target is not None:
            self.target.on_emit(log_record)

    def shutdown(self) -> None:
        """Have nothing to shut down."""

    def force_flush(self, timeout_millis: int = 30_000) -> bool:
        return True


@pytest.fixture(scope="module")
def log_switch() -> LogSwitch:
    known = get_logger_provider()
    provider = known if isinstance(known, LoggerProvider) else LoggerProvider()
    if provider is not known:
        set_logger_provider(provider)
    made = LogSwitch()
    provider.add_log_record_processor(made)  # type: ignore[arg-type]  # by its shape
    return made


@pytest.fixture(scope="module")
def switch() -> Switch:
    known = trace.get_tracer_provider()
    provider = known if isinstance(known, TracerProvider) else TracerProvider()
    if provider is not known:
        trace.set_tracer_provider(provider)
    made = Switch()
    provider.add_span_processor(made)
    return made


class Witness:
    """Sees every run twice: through the plugin and through the spans."""

    def __init__(self) -> None:
        self.by_plugin, self.by_spans = InlineRecorder(), InlineRecorder()
        self.plugin = EvaltapPlugin(recorder=self.by_plugin)
        self.processor = CaseSpanProcessor(recorder=self.by_spans)

    def turns(self) -> list[dict[str, Any]]:
        """Return the turns of the plugin, after comparing them with those of the spans."""
        self.by_spans.flush()
        seen = [facts(case) for case in by_time(self.by_plugin.cases)]
        assert seen == [facts(case) for case in by_time(self.by_spans.cases)]
        assert self.by_plugin.faults == self.by_spans.faults == []
        return seen


@pytest.fixture
def witness(
    switch: Switch, log_switch: LogSwitch, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Witness]:
    monkeypatch.setenv("OTEL_SEMCONV_STABILITY_OPT_IN", "gen_ai_latest_experimental")
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "SPAN_ONLY")
    found = Witness()
    switch.target = found.processor
    log_switch.target = found.processor.log_processor()
    yield found
    switch.target = log_switch.target = None


def by_time(cases: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(cases, key=lambda case: case["creationTimestamp"])


def facts(case: dict[str, Any]) -> dict[str, Any]:
    (turn,) = case["actualConversation"]
    return {
        "session": case["evalId"],
        "invocation": turn["invocationId"],
        "user": words(turn, "userContent"),
        "final": words(turn, "finalResponse"),
        "tools": tools(turn),
        "errors": [tool.get("error") for tool in turn.get("tools", [])],
        "agents": [tool["agent"] for tool in turn.get("tools", [])],
        "parents": [tool.get("parentId") for tool in turn.get("tools", [])],
        "intermediate": intermediate(turn),
        "status": turn["telemetry"]["status"],
        "error": turn["telemetry"].get("error"),
        "trace": (turn["telemetry"]["traceId"], turn["telemetry"]["rootSpanId"]),
        "tokens": (turn["telemetry"]["inputTokens"], turn["telemetry"]["outputTokens"]),
    }


ORDER = {"order_id": "A-1", "status": "delivered", "total": 42.5}


def test_one_tool(witness: Witness) -> None:
    agent = scripted(
        [call("get_order", "c1", order_id="A-1")], [say("Delivered.")], tools=[get_order]
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Where is A-1?")

    (turn,) = witness.turns()
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A-1?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A-1"}, ORDER)]
    assert (turn["status"], turn["tokens"]) == ("ok", (22, 10))


def test_parallel_tools_keep_the_models_order_and_lose_the_frameworks_envelope(
    witness: Witness,
) -> None:
    agent = scripted(
        [call("get_weather", "p1", city="Paris"), call("get_weather", "p2", city="Tokyo")],
        [say("Rain and sun.")],
        tools=[get_weather],
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Weather?")

    (turn,) = witness.turns()
    assert [(tool[0], tool[3]) for tool in turn["tools"]] == [
        ("p1", "14C rain"),
        ("p2", "22C sunny"),
    ]


@pytest.mark.parametrize("content", ["SPAN_AND_EVENT", "EVENT_ONLY"])
def test_content_in_log_records_tells_the_same_turn(
    witness: Witness, monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", content)
    agent = scripted(
        [say("Let me see."), call("get_weather", "p1", city="Paris")],
        [say("Rain.")],
        tools=[get_weather],
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Weather?")

    (turn,) = witness.turns()
    assert turn["tools"] == [("p1", "get_weather", {"city": "Paris"}, "14C rain")]


@pytest.mark.parametrize("variable", ["ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN", "NOTHING"])
def test_spans_without_content_keep_the_structure_and_invent_nothing(
    witness: Witness, monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
    monkeypatch.delenv("OTEL_SEMCONV_STABILITY_OPT_IN")
    monkeypatch.setenv("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "false")
    monkeypatch.setenv(variable, "1")
    agent = scripted(
        [say("Hm."), call("get_order", "c1", order_id="A-1")], [say("There.")], tools=[get_order]
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Where?")

    witness.by_spans.flush()
    (case,) = witness.by_spans.cases
    (turn,) = case["actualConversation"]
    assert set(turn["capture"]) == {"userContent", "finalResponse"}
    assert set(turn["capture"].values()) <= {"missing", "redacted"}
    assert tools(turn) == [("c1", "get_order", None, None)]
    assert intermediate(turn) == []


def test_schema_one_of_adks_spans_tells_the_same_turn(
    witness: Witness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN", "1")
    agent = scripted([call("flaky", "e2", sku="X9")], tools=[flaky])

    with pytest.raises(RuntimeError):
        Conversation(agent, [witness.plugin]).say_all("s1", "In stock?")

    (turn,) = witness.turns()
    assert turn["tools"] == [("e2", "flaky", {"sku": "X9"}, None)]


def test_words_before_a_tool_call_are_intermediate(witness: Witness) -> None:
    agent = scripted(
        [say("Let me see."), call("get_order", "c1", order_id="A-1")],
        [say("Delivered.")],
        tools=[get_order],
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Where?")

    (turn,) = witness.turns()
    assert (turn["intermediate"], turn["final"]) == (["Let me see."], "Delivered.")


def test_a_tool_that_reports_a_failure_has_both_result_and_error(witness: Witness) -> None:
    agent = scripted([call("soft", "e1", sku="X9")], [say("Sorry.")], tools=[soft])

    Conversation(agent, [witness.plugin]).say_all("s1", "In stock?")

    (turn,) = witness.turns()
    assert turn["tools"][0][3] == {"status": "error", "error": "inventory backend down for X9"}
    assert turn["errors"] == [{"type": "TOOL_ERROR"}]
    assert (turn["final"], turn["status"]) == ("Sorry.", "ok")


def test_a_tool_that_raises_fails_the_run_without_a_final_response(witness: Witness) -> None:
    agent = scripted([call("flaky", "e2", sku="X9")], tools=[flaky])

    with pytest.raises(RuntimeError, match="inventory backend down"):
        Conversation(agent, [witness.plugin]).say_all("s1", "In stock?")

    (turn,) = witness.turns()
    failure = {"type": "RuntimeError", "message": "inventory backend down for X9"}
    assert (turn["errors"], turn["error"], turn["status"]) == ([failure], failure, "error")
    assert turn["tools"][0][0] == "e2"
    assert turn["final"] is None


def test_a_model_that_raises_fails_the_run(witness: Witness) -> None:
    agent = scripted(
        [call("get_order", "c1", order_id="A-1")], TimeoutError("slow"), tools=[get_order]
    )

    with pytest.raises(TimeoutError):
        Conversation(agent, [witness.plugin]).say_all("s1", "Where?")

    (turn,) = witness.turns()
    assert (turn["status"], turn["error"]) == ("error", {"type": "TimeoutError", "message": "slow"})
    assert turn["tools"][0][3] == ORDER


def test_three_turns_of_a_session_are_three_turns_of_one_case(witness: Witness) -> None:
    agent = scripted(
        [say("Which order?")],
        [call("get_order", "c1", order_id="A-1")],
        [say("Delivered.")],
        [say("Bye.")],
        tools=[get_order],
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Hi", "A-1", "Thanks")

    turns = witness.turns()
    assert [turn["user"] for turn in turns] == ["Hi", "A-1", "Thanks"]
    assert [turn["final"] for turn in turns] == ["Which order?", "Delivered.", "Bye."]
    assert {turn["session"] for turn in turns} == {"s1"}
    assert len({turn["invocation"] for turn in turns}) == 3


def test_a_transfer_stays_in_the_turn(witness: Witness) -> None:
    billing = scripted(
        [call("get_order", "h2", order_id="A-1")],
        [say("Billed.")],
        name="billing_agent",
        description="bills",
        tools=[get_order],
    )
    triage = scripted(
        [call("transfer_to_agent", "h1", agent_name="billing_agent")],
        name="triage_agent",
        sub_agents=[billing],
    )

    Conversation(triage, [witness.plugin]).say_all("s1", "Bill me")

    (turn,) = witness.turns()
    assert (turn["user"], turn["final"]) == ("Bill me", "Billed.")
    assert [tool[1] for tool in turn["tools"]] == ["transfer_to_agent", "get_order"]
    assert turn["agents"] == ["triage_agent", "billing_agent"]


# ADK's own AgentTool builds its runner in a way that ADK deprecates.
@pytest.mark.filterwarnings("ignore:The `plugins` argument is deprecated")
def test_an_agent_as_tool_is_part_of_the_turn_around_it(witness: Witness) -> None:
    researcher = scripted(
        [say("hm"), call("get_order", "n2", order_id="A-1")],
        [say("A-1 is delivered.")],
        name="researcher",
        description="finds things",
        tools=[get_order],
    )
    boss = scripted(
        [call("researcher", "n1", request="find A-1")],
        [say("Good news.")],
        name="boss",
        tools=[AgentTool(researcher)],
    )

    Conversation(boss, [witness.plugin]).say_all("s1", "Where is A-1?")

    (turn,) = witness.turns()
    assert (turn["session"], turn["user"], turn["final"]) == ("s1", "Where is A-1?", "Good news.")
    assert turn["tools"] == [
        ("n1", "researcher", {"request": "find A-1"}, "A-1 is delivered."),
        ("n2", "get_order", {"order_id": "A-1"}, ORDER),
    ]
    assert turn["parents"] == [None, "n1"]
    assert turn["intermediate"] == []
    assert turn["tokens"] == (44, 20)


def test_a_streamed_answer_is_one_answer(witness: Witness) -> None:
    agent = scripted(
        [call("get_weather", "c1", city="Paris")], [say("It is 14C in Paris.")], tools=[get_weather]
    )

    Conversation(agent, [witness.plugin]).say_all("s1", "Weather?", stream=True)

    (turn,) = witness.turns()
    assert (turn["final"], turn["intermediate"]) == ("It is 14C in Paris.", [])


def test_concurrent_sessions_do_not_mix(witness: Witness) -> None:
    def an_agent(number: int) -> Conversation:
        agent = scripted(
            [call("get_order", f"c{number}", order_id=f"A-{number}")],
            [say(f"Answer {number}")],
            tools=[get_order],
        )
        return Conversation(agent, [witness.plugin])

    async def talk() -> None:
        await asyncio.gather(
            *(an_agent(number).ask(f"s{number}", f"Question {number}") for number in range(4))
        )

    asyncio.run(talk())

    turns = sorted(witness.turns(), key=lambda turn: turn["session"])
    assert [(turn["session"], turn["user"], turn["final"]) for turn in turns] == [
        (f"s{number}", f"Question {number}", f"Answer {number}") for number in range(4)
    ]
    assert [turn["tools"][0][0] for turn in turns] == ["c0", "c1", "c2", "c3"]


def test_a_caller_that_stops_at_the_final_event_has_the_final_response(witness: Witness) -> None:
    conversation = Conversation(scripted([say("Hello.")]), [witness.plugin])

    async def talk() -> None:
        events = await conversation.events("s1", "Hi")
        async for event in events:
            if event.is_final_response():
                break
        await events.aclose()

    asyncio.run(talk())

    (turn,) = witness.turns()
    assert (turn["final"], turn["status"]) == ("Hello.", "ok")


def test_a_cancelled_run_is_closed_as_incomplete_by_the_next_message() -> None:
    recorder = InlineRecorder()
    started = asyncio.Event()

    async def hang(order_id: str) -> str:
        """Never come back."""
        started.set()
        await asyncio.Event().wait()
        return order_id

    agent = scripted([call("hang", "c1", order_id="A")], [say("Hello again.")], tools=[hang])
    plugin = EvaltapPlugin(recorder=recorder)
    conversation = Conversation(agent, [plugin])

    async def talk() -> None:
        task = asyncio.create_task(conversation.ask("s1", "Hang"))
        await started.wait()
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task
        await conversation.ask("s1", "Are you there?")

    asyncio.run(talk())

    first, second = by_time(recorder.cases)
    assert first["source"]["closeReason"] == "next_message"
    assert first["actualConversation"][0]["telemetry"]["status"] == "incomplete"
    assert "finalResponse" not in first["actualConversation"][0]
    assert words(second["actualConversation"][0], "finalResponse") == "Hello again."


def test_closing_the_runner_closes_what_is_open() -> None:
    recorder = InlineRecorder()
    plugin = EvaltapPlugin(recorder=recorder)
    conversation = Conversation(scripted([say("Hello.")]), [plugin])

    async def talk() -> None:
        events = await conversation.events("s1", "Hi")
        await anext(events)
        await conversation.runner.close()

    asyncio.run(talk())

    case = recorder.cases[0]
    assert case["source"]["closeReason"] == "shutdown"
    assert words(case["actualConversation"][0], "finalResponse") == "Hello."


class Broken(InlineRecorder):
    """A recorder that cannot take anything."""

    def observe(self, observation: object) -> None:
        raise OSError("no")


def test_a_broken_recorder_does_not_disturb_the_agent() -> None:
    recorder = Broken()
    plugin = EvaltapPlugin(recorder=recorder)
    agent = scripted(
        [call("get_order", "c1", order_id="A-1")], [say("Delivered.")], tools=[get_order]
    )

    Conversation(agent, [plugin]).say_all("s1", "Where?")

    # Of a run whose beginning was not taken nothing else is told.
    assert {fault.split(":")[0] for fault in recorder.faults} == {
        "EvaltapPlugin.user_message",
        "EvaltapPlugin.begin",
    }


def test_every_callback_of_the_plugin_interface_is_observed_or_left_alone_on_purpose() -> None:
    from google.adk.plugins.base_plugin import BasePlugin

    offered = {name for name in vars(BasePlugin) if name.endswith("_callback") or name == "close"}

    assert offered - set(vars(EvaltapPlugin)) == {
        # Agents are seen by their model calls, tools and events; a model error by the run's error.
        "before_agent_callback",
        "after_agent_callback",
        "on_agent_error_callback",
        "on_model_error_callback",
    }
