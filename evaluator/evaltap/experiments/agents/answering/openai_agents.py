"""OpenAI Agents SDK: an agent's tools, as the SDK gathers them for a model call, ask for their answers.

So handoffs, agents as tools and MCP servers are reached too.
"""

import copy
import json
from typing import Any, Final

from agents import Agent, FunctionTool, Handoff, RunContextWrapper
from agents.agent import AgentBase
from agents.tool import Tool
from agents.tool_context import ToolContext

from evaltap.experiments.agents.base import by_provider, miss
from evaltap.recorder.answering import RUN, tool_answers

_HARMLESS: Final = ("ProgrammaticToolCallingTool", "ToolSearchTool")
"""Classes of tools that only choose among the others; an older SDK lacks some."""
_LOCAL: Final = ("ApplyPatchTool", "ComputerTool", "CustomTool", "LocalShellTool", "ShellTool")


def install() -> None:
    """Have all agents of the process ask, from now on: without answers their tools run as before."""
    if AgentBase.get_all_tools is not _asking_tools:
        AgentBase.get_all_tools = _asking_tools  # type: ignore[method-assign]


_live_tools: Final = AgentBase.get_all_tools


async def _asking_tools(self: AgentBase[Any], run_context: RunContextWrapper[Any]) -> list[Tool]:
    tools = await _live_tools(self, run_context)
    if (answers := tool_answers()) is None:
        return tools
    for tool in tools:
        if (why := _unanswerable(tool)) is not None:
            miss(answers, f"its {why}", tool.name)
    return [_asking(tool, self.name) if isinstance(tool, FunctionTool) else tool for tool in tools]


def _asking(tool: FunctionTool, owner: str) -> FunctionTool:
    """Return a copy of an agent's tool that asks; an agent runs live, and its own tools ask."""
    live, is_agent = tool.on_invoke_tool, _agent_in(tool) is not None
    # Within the SDK's handling of failures, where a tool has it: recorded errors become what live ones do.
    inner = getattr(live, "_invoke_tool_impl", None)
    run = live if inner is None else inner

    async def answer(context: ToolContext[Any], arguments: str) -> Any:
        answers, found = tool_answers(), RUN
        if answers is not None and is_agent:
            answers.delegated(tool.name)
        elif answers is not None:
            found = await answers.answer_later(tool.name, _given(arguments), agent=owner)
        return await run(context, arguments) if found is RUN else found

    copied = copy.copy(tool)
    if inner is None:
        copied.on_invoke_tool = answer
    else:
        handling: Any = copy.copy(copied.on_invoke_tool)  # Any: private to the SDK
        handling._invoke_tool_impl = answer
        copied.on_invoke_tool = handling
    return copied


def _given(arguments: str) -> Any:  # JSON of the model
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _agent_in(tool: object) -> Agent[Any] | None:
    """Return the agent that works as this tool."""
    agent = getattr(tool, "_agent_instance", None)
    return agent if isinstance(agent, Agent) else None


def unanswerable(agent: Agent[Any]) -> list[str]:
    """Return the tools of an agent, and of those that it works with, that no recording can answer."""
    whys = (_unanswerable(tool) for one in _agents(agent) for tool in one.tools)
    return [why for why in whys if why is not None]


def tool_names(agent: Agent[Any]) -> list[str] | None:
    """Return the names of the tools; None if an MCP server only tells them in a run."""
    agents = _agents(agent)
    if any(one.mcp_servers for one in agents):
        return None
    return sorted({tool.name for one in agents for tool in one.tools})


def _unanswerable(tool: Tool) -> str | None:
    kinds = {kind.__name__ for kind in type(tool).__mro__}
    if isinstance(tool, FunctionTool) or kinds.intersection(_HARMLESS):
        return None
    if kinds.intersection(_LOCAL):
        return f"tool {tool.name} runs in a way that cannot be answered from a recording"
    return by_provider(tool.name)


def _agents(agent: Agent[Any]) -> list[Agent[Any]]:
    found = [agent]
    for one in found:
        inner: list[Any] = [_agent_in(tool) for tool in one.tools]
        for other in (*one.handoffs, *inner):
            if isinstance(other, Handoff):
                reference = getattr(other, "_agent_ref", None)
                other = reference() if reference is not None else None
            if isinstance(other, Agent) and not any(other is known for known in found):
                found.append(other)
    return found
