"""Strands Agents: an agent keeps its conversation in itself, so that units take turns with one.

A factory makes an agent for each unit, and units then run concurrently.  In a replay, hooks have
a tool answered by a stand-in, and end a run after a miss.
"""

import asyncio
import copy
import functools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary, WeakSet

from strands import Agent
from strands.agent.state import AgentState
from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
from strands.multiagent.base import MultiAgentBase
from strands.types.content import Message, SystemContentBlock
from strands.types.events import ToolResultEvent
from strands.types.tools import AgentTool, ToolResult, ToolResultContent, ToolSpec, ToolUse

from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
    await_person,
    by_provider,
    system_texts,
)
from evaltap.experiments.agents.current import CURRENT, recording_to
from evaltap.recorder import Recorder
from evaltap.recorder.answering import RUN, RecordedError, ToolMiss, tool_answers
from evaltap.recorder.plugins.strands import EvaltapHooks
from evaltap.schemas.errors import InputError


def adapt(found: Any, recorder: Recorder) -> "StrandsAgent | None":
    if isinstance(found, MultiAgentBase):
        raise InputError(
            f"--agent: a {type(found).__name__} of Strands is no agent with a conversation; expected an Agent"
        )
    return StrandsAgent(found, recorder) if isinstance(found, Agent) else None


@dataclass(frozen=True, slots=True)
class _Start:
    """What an agent was when it was met: each unit starts from there."""

    messages: list[Message]
    prompt: Any  # a text or the framework's blocks
    state: dict[str, Any]
    locks: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = field(
        default_factory=WeakKeyDictionary
    )

    def is_free(self) -> asyncio.Lock:
        """Return the lock of this event loop: a lock serves only one."""
        return self.locks.setdefault(asyncio.get_running_loop(), asyncio.Lock())


_STARTS: Final[WeakKeyDictionary[Agent, _Start]] = WeakKeyDictionary()
"""A factory may return the same agent again, and tests run one many times: it gets our hooks once."""


class StrandsAgent:
    """An agent, which one unit has at a time."""

    def __init__(self, agent: Agent, recorder: Recorder) -> None:
        self._agent, self._recorder = agent, recorder
        agents = _with_inner(agent)
        self.abilities = Abilities(
            state=True,
            context=True,
            mocks=True,
            tool_names=tool_names(agents),
            unanswerable=unanswerable(agents),
        )
        if agent not in _STARTS:
            for one in agents:
                one.hooks.add_hook(EvaltapHooks(recorder=CURRENT))
                have_asking(one)
            _STARTS[agent] = _Start(
                copy.deepcopy(agent.messages),
                agent.system_prompt_content,
                copy.deepcopy(agent.state.get() or {}),
            )
        self._start = _STARTS[agent]

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation that starts as the agent was given, with the unit's state and context."""
        answers_for(self.abilities)
        agent, start = self._agent, self._start
        async with start.is_free():
            agent.messages[:] = copy.deepcopy(start.messages)
            agent.messages += [
                Message(role=one["role"], content=[{"text": one["content"]}])
                for one in unit.context
                if one["role"] != "system"
            ]
            told = [SystemContentBlock(text=text) for text in system_texts(unit.context)]
            agent.system_prompt = [*(start.prompt or ()), *told] or None
            agent.state = AgentState({**copy.deepcopy(start.state), **(unit.state or {})})
            with recording_to(self._recorder):
                yield _StrandsSession(agent, unit)


class _StrandsSession:
    def __init__(self, agent: Agent, unit: Unit) -> None:
        self._agent = agent
        self._passed = {"session_id": unit.session_id}
        if unit.user_id:
            self._passed["user_id"] = unit.user_id

    async def answer(self, asked: Asked) -> str | None:
        result = await self._agent.invoke_async(asked.user, invocation_state=dict(self._passed))
        if result.interrupts:
            await_person(result.interrupts[0].name)
        return answer_in(str(result).strip())


def _with_inner(agent: Agent) -> list[Agent]:
    """Return an agent and those that it has as tools: hooks are not inherited."""
    found = [agent]
    for one in found:
        tools = one.tool_registry.registry.values()
        inner = [getattr(tool, "agent", None) for tool in tools]
        found += [new for new in inner if isinstance(new, Agent) and new not in found]
    return found


_OF_THE_FRAMEWORK: Final = ("agent", "structured_output")
"""Types of tools that run: an agent, whose own tools are answered, and the answer's form."""
_MODEL_TOOLS: Final = ("anthropic_tools", "gemini_tools")


class MissedError(Exception):
    """A call had no answer: an exception that Strands passes on, as it loses a ToolMiss."""


def install() -> None:
    """Have all agents of the process ask, from now on: without answers their tools run as before."""
    if Agent.stream_async is not _stream_async:
        Agent.stream_async = _stream_async  # type: ignore[method-assign]


_live_stream: Final[Callable[..., AsyncIterator[Any]]] = Agent.stream_async
_ASKING: Final[WeakSet[Agent]] = WeakSet()


@functools.wraps(_live_stream)
def _stream_async(self: Agent, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
    if tool_answers() is not None:
        have_asking(self)
    return _live_stream(self, *args, **kwargs)


def have_asking(agent: Agent) -> None:
    """Give an agent the hooks that ask, once."""
    if agent not in _ASKING:
        _ASKING.add(agent)
        agent.hooks.add_hook(AnsweringHooks())


class AnsweringHooks(HookProvider):
    """Has the tools of an agent ask; an agent keeps its hooks, and without answers its tools run."""

    def register_hooks(self, registry: HookRegistry, **kwargs: object) -> None:
        registry.add_callback(BeforeToolCallEvent, self.before_tool_call)
        registry.add_callback(BeforeModelCallEvent, self.before_model_call)

    def before_tool_call(self, event: BeforeToolCallEvent) -> None:
        """Select a tool that returns the recorded result, or raises as the recorded call did."""
        answers, live, use = tool_answers(), event.selected_tool, event.tool_use
        if answers is None or live is None:
            return
        if live.tool_type in _OF_THE_FRAMEWORK:
            answers.delegated(use["name"])
            return
        found: Any
        try:
            found = answers.answer(use["name"], use["input"], agent=event.agent.name)
        except RecordedError as error:
            found = error
        except ToolMiss as miss:
            found = MissedError(str(miss))  # told to nobody: no model is called after it
        if found is not RUN:
            event.selected_tool = _Answer(live, found)

    def before_model_call(self, event: BeforeModelCallEvent) -> None:
        """End the run after a miss: parallel calls have ended by now."""
        answers = tool_answers()
        if answers is not None and answers.missed:
            raise MissedError(str(answers.missed[0]))


class _Answer(AgentTool):
    """The stand-in of a tool for one call."""

    def __init__(self, live: AgentTool, found: object) -> None:
        super().__init__()
        self._live, self._found = live, found

    @property
    def tool_name(self) -> str:
        return self._live.tool_name

    @property
    def tool_spec(self) -> ToolSpec:
        return self._live.tool_spec

    @property
    def tool_type(self) -> str:
        return self._live.tool_type

    async def stream(
        self, tool_use: ToolUse, invocation_state: dict[str, Any], **kwargs: Any
    ) -> AsyncGenerator[Any, None]:
        found = self._found
        if isinstance(found, RecordedError) and found.result is not None:
            failed = ToolResult(
                toolUseId=tool_use["toolUseId"], status="error", content=_content(found.result)
            )
            yield ToolResultEvent(failed, found)
        elif isinstance(found, Exception):
            raise found
        else:
            yield ToolResult(
                toolUseId=tool_use["toolUseId"], status="success", content=_content(found)
            )


def _content(found: object) -> list[ToolResultContent]:
    """Return the content that the recorder reads as this value."""
    if isinstance(found, dict):
        return [{"json": found}]
    if isinstance(found, list):
        return [one for item in found for one in _content(item)]
    return [{"text": found if isinstance(found, str) else json.dumps(found)}]


def unanswerable(agents: list[Agent]) -> list[str]:
    """Return what the models of agents are configured with that no recording can answer."""
    configs = [config for one in agents if isinstance(config := one.model.get_config(), dict)]
    given: list[Any] = []
    for config in configs:
        given += [tool for name in _MODEL_TOOLS for tool in config.get(name) or ()]
        parameters = config.get("params")
        given += (parameters.get("tools") or ()) if isinstance(parameters, dict) else ()
    return [by_provider(_name_of(tool)) for tool in given]


def _name_of(tool: object) -> str:
    if isinstance(tool, dict):
        return str(tool.get("name") or tool.get("type") or next(iter(tool), "of the model"))
    return type(tool).__name__


def tool_names(agents: list[Agent]) -> list[str]:
    """Return the names of the tools of agents."""
    return sorted({name for one in agents for name in one.tool_registry.registry})
