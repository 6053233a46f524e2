"""Special features of the openai-agents plugin; common behaviour is tested in the plugin contract."""

import asyncio
from collections.abc import Iterator

import agents
import pytest
from agents import Agent, OpenAIChatCompletionsModel, RunConfig, Runner, function_tool

from plugin_drivers.driver import ALL, Tap, call, get_order, says, tapped
from plugin_drivers.openai_agents import OpenAIAgents, client


@pytest.fixture
def tap() -> Iterator[Tap[OpenAIAgents]]:
    with tapped(OpenAIAgents) as tap:
        yield tap


@pytest.fixture
def alone() -> Iterator[Tap[OpenAIAgents]]:
    """The plugin without spans, for what they cannot tell."""
    with tapped(OpenAIAgents, differ=[ALL]) as tap:
        yield tap


def test_the_chat_completions_api_tells_the_same(tap: Tap[OpenAIAgents]) -> None:
    steps = [says("Let me see.", call("get_order", "c1", order_id="A")), says("Delivered.")]
    model = OpenAIChatCompletionsModel("scripted-1", client(*steps))

    tap.ask(Agent("support", model=model, tools=[function_tool(get_order)]), "Where is A?")

    turn = tap.turn()
    assert (turn["user"], turn["final"]) == ("Where is A?", "Delivered.")
    assert turn["tools"] == [("c1", "get_order", {"order_id": "A"}, get_order("A"))]
    assert turn["intermediate"] == ["Let me see."]


def test_two_runs_in_one_trace_are_two_turns(alone: Tap[OpenAIAgents]) -> None:
    async def talk() -> None:
        with agents.trace("support", group_id="s1"):
            await Runner.run(alone.agent(says("One.")), "First")
            await Runner.run(alone.agent(says("Two.")), "Second")

    asyncio.run(talk())

    assert [(turn["session"], turn["user"], turn["final"]) for turn in alone.turns()] == [
        ("s1", "First", "One."),
        ("s1", "Second", "Two."),
    ]


def test_without_content_the_structure_is_recorded_and_the_rest_is_missing(
    alone: Tap[OpenAIAgents],
) -> None:
    agent = alone.agent(
        says("", call("get_order", "c1", order_id="A")), says("Delivered."), tools=[get_order]
    )
    config = RunConfig(group_id="s1", trace_include_sensitive_data=False)

    asyncio.run(Runner.run(agent, "Where?", run_config=config))

    (case,) = alone.recorder.cases
    (turn,) = case["actualConversation"]
    assert turn["capture"] == {"userContent": "missing", "finalResponse": "missing"}
    (tool,) = turn["tools"]
    assert (tool["name"], "id" in tool) == ("get_order", False)
    assert tool["capture"] == {"id": "missing", "arguments": "missing", "result": "missing"}
