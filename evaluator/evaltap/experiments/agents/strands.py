"""Strands Agents: an agent keeps its conversation in itself, so that units take turns with one.

A factory makes an agent for each unit, and units then run concurrently.
"""

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final
from weakref import WeakKeyDictionary

from strands import Agent
from strands.agent.state import AgentState
from strands.multiagent.base import MultiAgentBase
from strands.types.content import Message, SystemContentBlock

from evaltap.experiments.agents.answering import strands as answering
from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
    system_texts,
)
from evaltap.experiments.agents.current import CURRENT, recording_to
from evaltap.recorder import Recorder
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
            tool_names=answering.tool_names(agents),
            unanswerable=answering.unanswerable(agents),
        )
        if agent not in _STARTS:
            for one in agents:
                one.hooks.add_hook(EvaltapHooks(recorder=CURRENT))
                answering.have_asking(one)
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
        return answer_in(str(result).strip())


def _with_inner(agent: Agent) -> list[Agent]:
    """Return an agent and those that it has as tools: hooks are not inherited."""
    found = [agent]
    for one in found:
        tools = one.tool_registry.registry.values()
        inner = [getattr(tool, "agent", None) for tool in tools]
        found += [new for new in inner if isinstance(new, Agent) and new not in found]
    return found
