"""OpenAI Agents SDK: an agent whose history is carried from turn to turn.

The trace processor of the recorder sees the runs; where tracing is disabled, its run hooks do.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from agents import Agent, RunConfig, Runner, add_trace_processor
from agents.tracing import get_trace_provider
from agents.tracing.traces import NoOpTrace

from evaltap.experiments.agents.answering import openai_agents as answering
from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
)
from evaltap.experiments.agents.current import CURRENT, recording_to
from evaltap.recorder import Recorder
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
            tool_names=answering.tool_names(agent),
            unanswerable=answering.unanswerable(agent),
        )
        self._is_traced = not isinstance(get_trace_provider().create_trace("evaltap"), NoOpTrace)

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation; each turn goes to the agent that answered the last one."""
        if answers_for(self.abilities) is not None:
            answering.install()
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
