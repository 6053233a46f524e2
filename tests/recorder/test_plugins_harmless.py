"""Whatever fails inside a plugin, at whatever step, the agent does not notice."""

import asyncio
from collections.abc import Callable
from typing import Any

import agents
import pytest
from agents import Runner, function_tool
from claude_agent_sdk import ClaudeAgentOptions, ClaudeSDKClient, ResultMessage
from langchain.agents import create_agent
from pydantic_ai import Agent
from pydantic_ai.messages import TextPart

import scripted_adk as adk
import scripted_claude as claude
import scripted_langchain as langchain
import scripted_openai as openai
import scripted_pydantic_ai as pydantic_ai
import scripted_strands as strands
from evaltap.recorder.failures import failure_of
from evaltap.recorder.observation import Observation, Origin
from evaltap.recorder.plugins.adk import EvaltapPlugin
from evaltap.recorder.plugins.claude_agent import EvaltapHooks as ClaudeHooks
from evaltap.recorder.plugins.langchain import EvaltapHandler
from evaltap.recorder.plugins.observed_run import ObservedRun
from evaltap.recorder.plugins.openai_agents import EvaltapTraceProcessor
from evaltap.recorder.plugins.pydantic_ai import EvaltapCapability
from evaltap.recorder.plugins.strands import EvaltapHooks as StrandsHooks
from inline_recorder import InlineRecorder

ANSWER = "Delivered."
MOST = 40
"""More observations than any of these runs makes."""


class FailsOnce(InlineRecorder):
    """Cannot take the n-th observation."""

    def __init__(self, nth: int) -> None:
        super().__init__()
        self.left = nth

    def observe(self, observation: Observation) -> None:
        self.left -= 1
        if self.left == 0:
            raise MemoryError("injected")
        super().observe(observation)


class Hostile:
    """An object of which nothing can be asked."""

    def __getattribute__(self, name: str) -> Any:
        raise RuntimeError(name)

    def __repr__(self) -> str:
        raise RuntimeError("repr")


def run_adk(recorder: InlineRecorder) -> str:
    agent = adk.scripted(
        [adk.call("get_order", "c1", order_id="A")], [adk.say(ANSWER)], tools=[adk.get_order]
    )
    conversation = adk.Conversation(agent, [EvaltapPlugin(recorder=recorder)])

    async def talk() -> str:
        words = ""
        async for event in await conversation.events("s1", "Where?"):
            parts = event.content.parts if event.content is not None else None
            words = (parts[0].text if parts else None) or words
        return words

    return asyncio.run(talk())


def run_pydantic_ai(recorder: InlineRecorder) -> str:
    agent = Agent(
        pydantic_ai.scripted(
            [pydantic_ai.called("get_order", "c1", order_id="A")], [TextPart(ANSWER)]
        ),
        tools=[pydantic_ai.get_order],
        capabilities=[EvaltapCapability(recorder=recorder)],
    )
    return str(pydantic_ai.ask(agent, "Where?").output)


@function_tool
def get_order(order_id: str) -> dict[str, Any]:
    """Look up an order."""
    return {"order_id": order_id}


def run_openai_agents(recorder: InlineRecorder) -> str:
    model = openai.scripted([openai.call("get_order", "c1", order_id="A")], [openai.say(ANSWER)])
    agents.set_trace_processors([EvaltapTraceProcessor(recorder=recorder)])
    try:
        agent = agents.Agent("support", model=model, tools=[get_order])
        return str(asyncio.run(Runner.run(agent, "Where?")).final_output)
    finally:
        agents.set_trace_processors([])


def run_langchain(recorder: InlineRecorder) -> str:
    model = langchain.scripted(
        langchain.say("", langchain.call("get_order", "c1", order_id="A")), langchain.say(ANSWER)
    )
    agent: Any = create_agent(model, [langchain.get_order])
    given = {"messages": [("user", "Where?")]}
    result = agent.invoke(given, {"callbacks": [EvaltapHandler(recorder=recorder)]})
    return str(result["messages"][-1].content)


def run_strands(recorder: InlineRecorder) -> str:
    agent = strands.agent_of(
        [strands.call("get_order", "c1", order_id="A")],
        [strands.say(ANSWER)],
        tools=[strands.get_order],
        hooks=[StrandsHooks(recorder=recorder)],
    )
    return str(agent("Where?")).strip()


def run_claude(recorder: InlineRecorder) -> str:
    hooks = ClaudeHooks(recorder=recorder)
    called = claude.called("get_order", "c1", {"order_id": "A"}, "there")
    cli = claude.ScriptedCli("s1", [*called, claude.said(ANSWER), *claude.stopped(ANSWER)])

    async def talk() -> str:
        options = ClaudeAgentOptions(hooks=hooks.hooks())
        messages: list[Any] = []
        async with ClaudeSDKClient(options, transport=cli) as client:
            await client.query("Where?")
            messages = [message async for message in hooks.watch(client.receive_response())]
        assert all(answer["subtype"] == "success" for answer in cli.answers)
        assert isinstance(messages[-1], ResultMessage)
        return str(messages[-1].result)

    return asyncio.run(talk())


Run = Callable[[InlineRecorder], str]
RUNS: list[Run] = [
    run_adk,
    run_claude,
    run_langchain,
    run_openai_agents,
    run_pydantic_ai,
    run_strands,
]


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__.removeprefix("run_"))
def test_an_observation_that_cannot_be_taken_is_a_fault_and_nothing_else(run: Run) -> None:
    for nth in range(1, MOST):
        recorder = FailsOnce(nth)

        assert run(recorder) == ANSWER

        if recorder.left > 0:
            assert recorder.faults == []
            break
        assert "MemoryError" in recorder.faults[0]
    else:
        pytest.fail("more observations than expected")


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.__name__.removeprefix("run_"))
def test_every_run_that_began_is_told_to_its_end(run: Run) -> None:
    recorder = InlineRecorder()

    run(recorder)

    assert len({case["evalId"] for case in recorder.cases}) == 1
    assert recorder.assembler.open_runs == 0
    turn = recorder.cases[-1]["actualConversation"][0]
    assert turn["userContent"]["content"] == "Where?"
    assert turn["finalResponse"]["content"] == ANSWER
    assert [tool["id"] for tool in turn["tools"]] == ["c1"]


def test_objects_that_cannot_be_asked_anything_do_no_harm() -> None:
    recorder = InlineRecorder()

    run = ObservedRun(recorder, Origin())
    run.called("c1", "odd", {})
    run.returned("c1", {"odd": Hostile()})
    run.end("error", failure_of(HostileError()))

    (tool,) = recorder.cases[0]["actualConversation"][0]["tools"]
    assert "<" in str(tool["result"]), "only the name of a type may be left of it"
    assert recorder.cases[0]["actualConversation"][0]["telemetry"]["error"]["type"].endswith(
        "HostileError"
    )


class HostileError(Exception):
    """An error that cannot tell what it is."""

    def __str__(self) -> str:
        raise RuntimeError("no")
