"""pydantic-ai: an agent whose message history is carried from turn to turn."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from pydantic_ai import Agent
from pydantic_ai.capabilities import ReinjectSystemPrompt
from pydantic_ai.messages import ModelMessage, ModelRequest, ModelResponse, TextPart, UserPromptPart

from evaltap.experiments.agents.answering import pydantic_ai as answering
from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    ChatMessage,
    Unit,
    answer_in,
    answers_for,
    system_texts,
)
from evaltap.recorder import Recorder
from evaltap.recorder.plugins.pydantic_ai import EvaltapCapability
from evaltap.recorder.plugins.support import text_of


def adapt(found: Any, recorder: Recorder) -> "PydanticAgent | None":
    return PydanticAgent(found, recorder) if isinstance(found, Agent) else None


class PydanticAgent:
    """An agent; runs share it, as it holds no conversation."""

    def __init__(self, agent: Agent[Any, Any], recorder: Recorder) -> None:
        self._agent = agent
        self.abilities = Abilities(
            context=True,
            mocks=True,
            tool_names=answering.tool_names(agent),
            unanswerable=answering.unanswerable(agent),
        )
        self._recording = EvaltapCapability(recorder=recorder)

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation; system messages of the case are instructions."""
        if answers_for(self.abilities) is not None:
            answering.install()
        yield _PydanticSession(self._agent, self._recording, unit)


class _PydanticSession:
    def __init__(self, agent: Agent[Any, Any], recording: EvaltapCapability, unit: Unit) -> None:
        self._agent, self._unit = agent, unit
        self._history = [*_messages(unit.context)]
        # With a history, the framework takes the agent's own system prompt for told.
        prompts = [ReinjectSystemPrompt()] if self._history else []
        self._capabilities = [recording, *prompts]

    async def answer(self, asked: Asked) -> str | None:
        result = await self._agent.run(
            asked.user,
            message_history=self._history or None,
            conversation_id=self._unit.session_id,
            instructions="\n\n".join(system_texts(self._unit.context)) or None,
            capabilities=self._capabilities,
        )
        self._history = result.all_messages()
        return answer_in(None if result.output is None else text_of(result.output))


def _messages(context: Sequence[ChatMessage]) -> list[ModelMessage]:
    found: list[ModelMessage] = []
    for message in context:
        text = message["content"]
        if message["role"] == "user":
            found.append(ModelRequest(parts=[UserPromptPart(text)]))
        elif message["role"] != "system":
            found.append(ModelResponse(parts=[TextPart(text)]))
    return found
