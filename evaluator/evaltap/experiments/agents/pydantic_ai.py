"""pydantic-ai: an agent whose message history is carried from turn to turn.

In a replay, a capability, given to every run of an agent, has toolsets ask for their answers.  Output
functions are not tools, and run.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from typing import Any, Final

from pydantic_ai import Agent, DeferredToolRequests, RunContext
from pydantic_ai.capabilities import AbstractCapability, CapabilityOrdering, ReinjectSystemPrompt
from pydantic_ai.exceptions import ModelRetry, ToolFailed
from pydantic_ai.messages import (
    ModelMessage,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    UserPromptPart,
)
from pydantic_ai.models import ModelRequestContext
from pydantic_ai.native_tools import AbstractNativeTool
from pydantic_ai.toolsets import AbstractToolset, FunctionToolset, ToolsetTool, WrapperToolset

from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    ChatMessage,
    Unit,
    answer_in,
    answers_for,
    await_person,
    by_provider,
    miss,
    system_texts,
)
from evaltap.recorder import Recorder
from evaltap.recorder.answering import RUN, RecordedError, tool_answers
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
            tool_names=tool_names(agent),
            unanswerable=unanswerable(agent),
        )
        self._recording = EvaltapCapability(recorder=recorder)

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation; system messages of the case are instructions."""
        if answers_for(self.abilities) is not None:
            install()
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
        if isinstance(output := result.output, DeferredToolRequests):
            await_person(next(call.tool_name for call in (*output.approvals, *output.calls)))
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


def install() -> None:
    """Have all agents of the process ask, from now on: without answers their tools run as before.

    An agent that works within another one's tool is known to that tool only.
    """
    if Agent.iter is not _iter:
        Agent.iter = _iter  # type: ignore[method-assign]


_SEARCH: Final = "tool_search"
"""The kind of the one that only finds the agent's own tools."""
_live_iter: Final[Callable[..., AbstractAsyncContextManager[Any]]] = Agent.iter


def _iter(self: Agent[Any, Any], *args: Any, **kwargs: Any) -> AbstractAsyncContextManager[Any]:
    if tool_answers() is not None:
        kwargs["capabilities"] = [*(kwargs.get("capabilities") or ()), _Answering()]
    return _live_iter(self, *args, **kwargs)


class _Answering(AbstractCapability[Any]):
    """Swaps the toolset of a run, inside of what else wraps it."""

    def get_ordering(self) -> CapabilityOrdering:
        return CapabilityOrdering(position="innermost")

    def get_wrapper_toolset(self, toolset: AbstractToolset[Any]) -> AbstractToolset[Any]:
        return _AskingToolset(toolset)

    async def before_model_request(
        self, ctx: RunContext[Any], request_context: ModelRequestContext
    ) -> ModelRequestContext:
        answers, profile = tool_answers(), request_context.model.profile
        supported = profile.get("supported_native_tools", frozenset())
        for tool in request_context.model_request_parameters.native_tools:
            is_used = not tool.optional or type(tool) in supported
            if answers is not None and tool.kind != _SEARCH and is_used:
                miss(answers, f"its {by_provider(tool.kind)}", tool.kind)
        return request_context


@dataclass
class _AskingToolset(WrapperToolset[Any]):
    async def call_tool(
        self, name: str, tool_args: dict[str, Any], ctx: RunContext[Any], tool: ToolsetTool[Any]
    ) -> Any:
        answers, found = tool_answers(), RUN
        try:
            if answers is not None:
                agent = (ctx.agent.name if ctx.agent is not None else None) or ""
                found = await answers.answer_later(name, _asked(ctx, tool_args), agent=agent)
        except RecordedError as error:
            if error.result is None:  # the model was told nothing: the run ended there
                raise
            retried = type(error).__name__ == ModelRetry.__name__
            raise (ModelRetry if retried else ToolFailed)(str(error)) from error
        if found is RUN:
            return await super().call_tool(name, tool_args, ctx, tool)
        return found


def _asked(ctx: RunContext[Any], validated: dict[str, Any]) -> object:
    """Return the arguments that the model has sent, which are recorded: without defaults."""
    for message in reversed(ctx.messages):
        for part in message.parts if isinstance(message, ModelResponse) else ():
            if isinstance(part, ToolCallPart) and part.tool_call_id == ctx.tool_call_id:
                return part.args
    return validated


def unanswerable(agent: Agent[Any, Any]) -> list[str]:
    """Return the tools of an agent that no recording can answer, but for those that a run decides on."""
    given = agent.root_capability.get_native_tools()
    native = [tool for tool in given if isinstance(tool, AbstractNativeTool)]
    return [by_provider(one.kind) for one in native if one.kind != _SEARCH and not one.optional]


def tool_names(agent: Agent[Any, Any]) -> list[str] | None:
    """Return the names of the tools; None if a toolset only tells them in a run."""
    names: set[str] = set()
    for toolset in agent.toolsets:
        if not isinstance(toolset, FunctionToolset):
            return None
        names.update(toolset.tools)
    return sorted(names)
