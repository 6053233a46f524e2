"""OpenAI Agents SDK: an agent whose history is carried from turn to turn.

The trace processor of the recorder sees the runs; where tracing is disabled, its run hooks do.  In a replay,
tools ask for their answers as the SDK gathers them for a model call: so handoffs, agents as tools and MCP
servers are reached too.
"""

import copy
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from agents import (
    Agent,
    FunctionTool,
    Handoff,
    RunConfig,
    RunContextWrapper,
    Runner,
    add_trace_processor,
)
from agents.agent import AgentBase
from agents.tool import Tool
from agents.tool_context import ToolContext
from agents.tracing import get_trace_provider
from agents.tracing.traces import NoOpTrace

from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
    await_person,
    by_provider,
    miss,
)
from evaltap.experiments.agents.current import CURRENT, recording_to
from evaltap.recorder import Recorder
from evaltap.recorder.answering import RUN, tool_answers
from evaltap.recorder.plugins.openai_agents import EvaltapTraceProcessor
from evaltap.recorder.plugins.openai_run_hooks import EvaltapRun
from evaltap.recorder.plugins.support import text_of


def adapt(found: Any, recorder: Recorder) -> "OpenAIAgent | None":
    return OpenAIAgent(found, recorder) if isinstance(found, Agent) else None


class OpenAIAgent:
    """An agent; runs share it, as it holds no conversation."""

    def __init__(self, agent: Agent[Any], recorder: Recorder) -> None:
        self._agent, self._recorder = agent, recorder
        self.abilities = Abilities(
            context=True,
            mocks=True,
            tool_names=tool_names(agent),
            unanswerable=unanswerable(agent),
        )
        self._is_traced = not isinstance(get_trace_provider().create_trace("evaltap"), NoOpTrace)

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation; each turn goes to the agent that answered the last one."""
        if answers_for(self.abilities) is not None:
            install()
        with recording_to(self._recorder):
            if self._is_traced:
                _install()
            yield _OpenAISession(self._agent, unit, None if self._is_traced else self._recorder)


class _OpenAISession:
    def __init__(self, agent: Agent[Any], unit: Unit, recorder: Recorder | None) -> None:
        self._agent, self._unit, self._recorder = agent, unit, recorder
        self._history: list[Any] = [*unit.context]

    async def answer(self, asked: Asked) -> str | None:
        given = [*self._history, {"role": "user", "content": asked.user}]
        session_id, user_id = self._unit.session_id, self._unit.user_id or None
        config = RunConfig(group_id=session_id)
        if self._recorder is None:
            result = await Runner.run(self._agent, given, run_config=config)
        else:
            with EvaltapRun(self._recorder, session_id=session_id, user_id=user_id) as hooks:
                result = await Runner.run(self._agent, given, run_config=config, hooks=hooks)
        if result.interruptions:
            await_person(result.interruptions[0].name or "a call")
        self._history, self._agent = result.to_input_list(), result.last_agent
        output = result.final_output
        return answer_in(None if output is None else text_of(output))


def _install() -> None:
    """Have the SDK, whose processors are those of the process, tell the recorder of the run, once."""
    held = getattr(getattr(get_trace_provider(), "_multi_processor", None), "_processors", None)
    if _PROCESSOR not in (_INSTALLED if held is None else held):
        add_trace_processor(_PROCESSOR)
        _INSTALLED.append(_PROCESSOR)


_PROCESSOR: Final = EvaltapTraceProcessor(recorder=CURRENT)
_INSTALLED: Final[list[EvaltapTraceProcessor]] = []


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
