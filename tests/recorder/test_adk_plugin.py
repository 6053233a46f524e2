"""Special features of the Google ADK plugin; common behaviour is tested in the plugin contract."""

import asyncio
from collections.abc import AsyncGenerator, Iterator
from typing import Any

import pytest
from google.adk.agents import LlmAgent
from google.adk.apps import App
from google.adk.models.base_llm import BaseLlm
from google.adk.models.llm_request import LlmRequest
from google.adk.models.llm_response import LlmResponse
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.genai import types

from evaltap.recorder.plugins.adk import EvaltapPlugin
from plugin_drivers.adk import Adk, content
from plugin_drivers.driver import ALL, Tap, call, get_order, says, tapped
from support.builders.span_builders import intermediate, tools, words


def flaky(sku: str) -> str:
    """Check the stock, and fail."""
    raise RuntimeError(f"inventory backend down for {sku}")


def soft(sku: str) -> dict[str, Any]:
    """Check the stock, and say that it failed."""
    return {"status": "error", "error": f"inventory backend down for {sku}"}


@pytest.fixture
def tap() -> Iterator[Tap[Adk]]:
    with tapped(Adk) as tap:
        yield tap


@pytest.fixture
def alone() -> Iterator[Tap[Adk]]:
    """The plugin without spans, for what they tell otherwise."""
    with tapped(Adk, differ=[ALL]) as tap:
        yield tap


@pytest.mark.parametrize("content", ["SPAN_AND_EVENT", "EVENT_ONLY"])
def test_content_in_log_records_tells_the_same_turn(
    tap: Tap[Adk], monkeypatch: pytest.MonkeyPatch, content: str
) -> None:
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", content)
    agent = tap.agent(
        says("Let me see.", call("get_order", "p1", order_id="A")),
        says("Delivered."),
        tools=[get_order],
    )

    tap.ask(agent, "Where?")

    assert tap.turn()["tools"] == [("p1", "get_order", {"order_id": "A"}, get_order("A"))]


@pytest.mark.parametrize("variable", ["ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN", "NOTHING"])
def test_spans_without_content_keep_the_structure_and_invent_nothing(
    tap: Tap[Adk], monkeypatch: pytest.MonkeyPatch, variable: str
) -> None:
    monkeypatch.delenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT")
    monkeypatch.delenv("OTEL_SEMCONV_STABILITY_OPT_IN")
    monkeypatch.setenv("ADK_CAPTURE_MESSAGE_CONTENT_IN_SPANS", "false")
    monkeypatch.setenv(variable, "1")
    agent = tap.agent(
        says("Hm.", call("get_order", "c1", order_id="A")), says("There."), tools=[get_order]
    )

    tap.ask(agent, "Where?")

    tap.witness.by_spans.flush()
    (case,) = tap.witness.by_spans.cases
    (turn,) = case["actualConversation"]
    assert set(turn["capture"]) - {"contextMessages"} == {"userContent", "finalResponse"}
    assert set(turn["capture"].values()) <= {"missing", "redacted"}
    assert tools(turn) == [("c1", "get_order", None, None)]
    assert intermediate(turn) == []


def test_schema_one_of_adks_spans_tells_the_same_turn(
    tap: Tap[Adk], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ADK_TELEMETRY_SCHEMA_VERSION_OPT_IN", "1")
    agent = tap.agent(says("", call("flaky", "e2", sku="X9")), tools=[flaky], raises=True)

    with pytest.raises(RuntimeError):
        tap.ask(agent, "In stock?")

    assert tap.turn()["tools"] == [("e2", "flaky", {"sku": "X9"}, None)]


def test_plugin_and_spans_name_the_same_invocation_and_trace(tap: Tap[Adk]) -> None:
    def named(case: dict[str, Any]) -> tuple[str, str, str]:
        (turn,) = case["actualConversation"]
        telemetry = turn["telemetry"]
        return turn["invocationId"], telemetry["traceId"], telemetry["rootSpanId"]

    tap.ask(tap.agent(says("One."), says("Two.")), "First", "Second")

    assert len(tap.turns()) == 2
    seen = [named(case) for case in tap.witness.by_plugin.cases]
    assert seen == [named(case) for case in tap.witness.by_spans.cases]
    assert len({invocation for invocation, _, _ in seen}) == 2


def test_a_tool_that_reports_a_failure_has_both_result_and_error(tap: Tap[Adk]) -> None:
    agent = tap.agent(
        says("", call("soft", "e1", sku="X9")), says("Sorry."), tools=[soft], raises=True
    )

    tap.ask(agent, "In stock?")

    turn = tap.turn()
    assert turn["tools"][0][3] == {"status": "error", "error": "inventory backend down for X9"}
    assert turn["errors"] == [{"type": "TOOL_ERROR"}]
    assert (turn["final"], turn["status"]) == ("Sorry.", "ok")


@pytest.mark.parametrize(
    ("usage", "tokens"),
    [
        ({"prompt_token_count": 100, "candidates_token_count": 10, "thoughts_token_count": 90,
          "tool_use_prompt_token_count": 5, "total_token_count": 205}, (105, 100)),
        # LiteLLM: reasoning is part of the output, as the total says.
        ({"prompt_token_count": 100, "candidates_token_count": 100, "thoughts_token_count": 90,
          "total_token_count": 200}, (100, 100)),
        ({"prompt_token_count": 0, "candidates_token_count": 0}, (None, None)),
    ],
)  # fmt: skip
def test_output_tokens_include_reasoning_once(
    alone: Tap[Adk], usage: dict[str, Any], tokens: tuple[int | None, int | None]
) -> None:
    class Thinking(BaseLlm):
        async def generate_content_async(
            self, llm_request: LlmRequest, stream: bool = False
        ) -> AsyncGenerator[LlmResponse, None]:
            metadata = types.GenerateContentResponseUsageMetadata.model_validate(usage)
            yield LlmResponse(content=content([types.Part(text="Hi.")]), usage_metadata=metadata)

    agent = LlmAgent(name="support", model=Thinking(model="scripted-1"))
    app = App(name="shop", root_agent=agent, plugins=[alone.driver.plugin])

    alone.ask(Runner(app=app, session_service=alone.driver.sessions), "Hello")

    assert alone.turn()["tokens"] == tokens


def test_a_caller_that_stops_at_the_final_event_has_the_final_response(tap: Tap[Adk]) -> None:
    async def talk() -> None:
        events = await tap.driver.events(tap.agent(says("Hello.")), "Hi")
        async for event in events:
            if event.is_final_response():
                break
        await events.aclose()

    asyncio.run(talk())

    turn = tap.turn()
    assert (turn["final"], turn["status"]) == ("Hello.", "ok")


def test_a_caller_that_stops_before_the_answer_leaves_the_run_incomplete(alone: Tap[Adk]) -> None:
    agent = alone.agent(
        says("Let me see.", call("get_order", "p1", order_id="A")),
        says("Delivered."),
        tools=[get_order],
    )

    async def talk() -> None:
        events = await alone.driver.events(agent, "Where?")
        await anext(events)
        await events.aclose()

    asyncio.run(talk())

    turn = alone.turn()
    assert (turn["status"], turn["final"]) == ("incomplete", None)
    assert turn["intermediate"] == ["Let me see."]


def test_a_cancelled_call_has_not_failed(alone: Tap[Adk]) -> None:
    async def talk() -> None:
        agent = await alone.cancel_in_a_tool("", "p1")
        await agent.close()

    asyncio.run(talk())

    turn = alone.turn()
    assert turn["tools"] == [("p1", "hang", {}, None)]
    assert turn["errors"] == [None]


def test_closing_the_runner_closes_what_is_open(tap: Tap[Adk]) -> None:
    runner = tap.agent(says("Hello."))

    async def talk() -> None:
        events = await tap.driver.events(runner, "Hi")
        await anext(events)
        await runner.close()

    asyncio.run(talk())

    case = tap.recorder.cases[0]
    assert case["source"]["closeReason"] == "shutdown"
    assert words(case["actualConversation"][0], "finalResponse") == "Hello."


def test_every_callback_of_the_plugin_interface_is_observed_or_left_alone_on_purpose() -> None:
    offered = {name for name in vars(BasePlugin) if name.endswith("_callback") or name == "close"}

    assert offered - set(vars(EvaltapPlugin)) == {
        # Agents are seen by their model calls, tools and events; a model error by the run's error.
        "before_agent_callback",
        "after_agent_callback",
        "on_agent_error_callback",
        "on_model_error_callback",
    }
