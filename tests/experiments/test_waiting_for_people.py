"""Agents that wait for a person to decide on a call: a replay has no decision, and they have not failed."""

from collections.abc import Callable
from typing import Any

import pytest
from agents import Agent as OpenAIAgent
from agents import OpenAIChatCompletionsModel, function_tool
from google.adk.agents import LlmAgent
from google.adk.tools.function_tool import FunctionTool
from langchain.agents import create_agent
from langchain.agents.middleware import HumanInTheLoopMiddleware
from langchain_core.tools import tool as langchain_tool
from langgraph.checkpoint.memory import InMemorySaver
from pydantic_ai import Agent as PydanticAgent
from pydantic_ai import DeferredToolRequests
from pydantic_ai import Tool as PydanticTool
from strands import Agent as StrandsAgent
from strands.hooks import BeforeToolCallEvent, HookProvider, HookRegistry
from strands.tools.decorator import tool as strands_tool

from evaltap.evaluator.analysis.forecast.fates import Fork
from evaltap.experiments.agents.base import AgentError
from evaltap.recorder.answering import ToolMiss
from plugin_drivers.adk import ScriptedModel as AdkModel
from plugin_drivers.driver import call, says
from plugin_drivers.langchain import model as langchain_model
from plugin_drivers.openai_agents import client
from plugin_drivers.pydantic_ai import model as pydantic_model
from plugin_drivers.strands import ScriptedModel as StrandsModel
from support.worlds.framework_runs import Runs, unit_of
from support.worlds.replayed_agents import Recording, recorded, replay_now

STEPS = says("I will ask.", call("refund", "c1", number=1)), says("Done.")


def refund(number: int) -> str:
    """Refund an order."""
    raise AssertionError("it ran")


class AsksFirst(HookProvider):
    """Has a person decide before a tool runs."""

    def register_hooks(self, registry: HookRegistry, **kwargs: object) -> None:
        registry.add_callback(
            BeforeToolCallEvent, lambda event: event.interrupt("refund", reason="May I?")
        )


AGENTS: dict[str, Callable[[], Any]] = {
    "adk": lambda: LlmAgent(
        name="boss",
        model=AdkModel(script=[*STEPS]),
        tools=[FunctionTool(refund, require_confirmation=True)],
    ),
    "langgraph": lambda: create_agent(
        langchain_model(*STEPS),
        [langchain_tool(refund)],
        middleware=[HumanInTheLoopMiddleware(interrupt_on={"refund": True})],
        checkpointer=InMemorySaver(),
    ),
    "openai": lambda: OpenAIAgent(
        "boss",
        model=OpenAIChatCompletionsModel("m", client(*STEPS)),
        tools=[function_tool(refund, needs_approval=True)],
    ),
    "pydantic-ai": lambda: PydanticAgent(
        pydantic_model(*STEPS),
        output_type=[str, DeferredToolRequests],
        tools=[PydanticTool(refund, requires_approval=True)],
    ),
    "strands": lambda: StrandsAgent(
        StrandsModel(*STEPS),
        tools=[strands_tool(refund)],
        hooks=[AsksFirst()],
        callback_handler=None,
    ),
}


@pytest.mark.parametrize("name", AGENTS)
def test_a_replay_has_no_decision_which_is_no_fork_of_the_agents(name: str, runs: Runs) -> None:
    answers = Recording(recorded("refund", number=1, result="refunded"))

    ended, _ = replay_now(runs, AGENTS[name](), answers, unit_of("Refund order 1."))

    assert isinstance(ended, ToolMiss)
    assert str(ended) == "decision on refund was a person's and cannot be given again"
    assert ended.tool == "refund"
    assert Fork("refund", {}, str(ended)).is_lost


@pytest.mark.parametrize("name", AGENTS)
def test_a_run_says_for_what_it_waits(name: str, runs: Runs) -> None:
    ended, _ = replay_now(runs, AGENTS[name](), None, unit_of("Refund order 1."))

    assert isinstance(ended, AgentError)
    assert str(ended) == "the agent waits for a person to decide on refund"
