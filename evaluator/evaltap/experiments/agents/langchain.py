"""LangChain and LangGraph: a graph with or without a checkpointer, or any other runnable.

A graph with a checkpointer remembers by the thread id, which is the session's; any other is given all
messages. A chain is given what its input asks for: messages, or a question and perhaps a history.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from langchain_core.runnables import Runnable, RunnableConfig

from evaltap.experiments.agents.answering import langchain as answering
from evaltap.experiments.agents.base import (
    Abilities,
    AgentError,
    AgentSession,
    Asked,
    ChatMessage,
    Unit,
    answer_in,
    answers_for,
)
from evaltap.experiments.agents.functions import called
from evaltap.recorder import Recorder
from evaltap.recorder.plugins.langchain import EvaltapHandler
from evaltap.recorder.plugins.langchain_values import result_of, state_of
from evaltap.schemas.errors import InputError

_HISTORY: Final = ("chat_history", "history")


def adapt(found: Any, recorder: Recorder) -> "LangChainAgent | None":
    return LangChainAgent(found, recorder) if isinstance(found, Runnable) else None


class LangChainAgent:
    """A runnable; runs share it, as each has a thread of its own."""

    def __init__(self, runnable: Runnable[Any, Any], recorder: Recorder) -> None:
        self._runnable = runnable
        self._handler = EvaltapHandler(recorder=recorder)
        self._is_graph = hasattr(runnable, "checkpointer")
        properties = runnable.get_input_jsonschema().get("properties") or {}
        self._inputs = [name for name in properties if name not in _HISTORY]
        self._history = next((name for name in properties if name in _HISTORY), "")
        if "messages" not in self._inputs and (self._is_graph or len(self._inputs) > 1):
            raise InputError(
                f"--agent: the {type(runnable).__name__} takes {', '.join(self._inputs) or 'nothing'};"
                " expected 'messages', or one input that is the user's message"
            )
        takes_all = not self._inputs or "messages" in self._inputs or bool(self._history)
        self.abilities = Abilities(
            state=self._is_graph,
            context=takes_all,
            mocks=True,
            tool_names=answering.tool_names(runnable),
        )

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation in a thread of its own."""
        if unknown := sorted(set(unit.state or ()).difference(self._inputs)):
            raise AgentError(f"the graph's state has no {unknown[0]!r}: {', '.join(self._inputs)}")
        if answers_for(self.abilities) is not None:
            answering.install()
        yield _LangChainSession(self, unit, blocks=await self._blocks(unit))

    async def run(self, unit: Unit, given: Any, *, blocks: bool) -> Any:
        """Invoke the runnable once, on a thread if it blocks."""
        config: RunnableConfig = {
            "callbacks": [self._handler, answering.ProviderToolGuard()],
            "configurable": {"thread_id": unit.session_id},
            "metadata": {
                "session_id": unit.session_id,
                **({"user_id": unit.user_id} if unit.user_id else {}),
            },
        }
        if blocks:
            return await called(self._runnable.invoke, given, config)
        return await self._runnable.ainvoke(given, config)

    @property
    def remembers(self) -> bool:
        """Whether a checkpointer holds the conversation."""
        return bool(getattr(self._runnable, "checkpointer", None))

    async def _blocks(self, unit: Unit) -> bool:
        """Return whether the checkpointer cannot be used from an event loop."""
        saver = getattr(self._runnable, "checkpointer", None)
        if saver is None or not hasattr(saver, "aget_tuple"):
            return False
        try:
            await saver.aget_tuple({"configurable": {"thread_id": unit.session_id}})
        except NotImplementedError:
            return True
        return False

    def input_of(self, messages: Sequence[ChatMessage], state: Mapping[str, Any]) -> Any:
        """Return the input that these messages make."""
        if not self._inputs:
            return [*messages]
        if "messages" in self._inputs:
            return {**state, "messages": [*messages]}
        given: dict[str, Any] = {self._inputs[0]: messages[-1]["content"]}
        if self._history:
            given[self._history] = [*messages[:-1]]
        return given


class _LangChainSession:
    def __init__(self, agent: LangChainAgent, unit: Unit, *, blocks: bool) -> None:
        self._agent, self._unit, self._blocks = agent, unit, blocks
        self._state: Mapping[str, Any] = unit.state or {}
        self._is_first = True

    async def answer(self, asked: Asked) -> str | None:
        if self._agent.remembers and not self._is_first:
            given = self._agent.input_of(asked.messages[-1:], {})
        else:
            given = self._agent.input_of(asked.messages, self._state)
        self._is_first = False
        output = await self._agent.run(self._unit, given, blocks=self._blocks)
        self._state = {**self._state, **state_of(output)}
        return answer_in(result_of(output))
