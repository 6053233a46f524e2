"""LangChain and LangGraph: a graph with or without a checkpointer, or any other runnable.

A graph with a checkpointer remembers by the thread id, which is the session's; any other is given all
messages. A chain is given what its input asks for: messages, or a question and perhaps a history.

In a replay, a tool that is run asks for its answer, wherever a graph, a chain or another tool runs it. It is
a copy of the tool that runs, with another body: validation, injected arguments, callbacks and the handling of
errors are the tool's own.
"""

import copy
import functools
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Final

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import ToolMessage
from langchain_core.runnables import Runnable, RunnableConfig
from langchain_core.tools import BaseTool, ToolException

from evaltap.experiments.agents.base import (
    Abilities,
    AgentError,
    AgentSession,
    Asked,
    ChatMessage,
    Unit,
    answer_in,
    answers_for,
    await_person,
    by_provider,
    miss,
)
from evaltap.experiments.agents.functions import called
from evaltap.recorder import Recorder
from evaltap.recorder.answering import RUN, RecordedError, tool_answers
from evaltap.recorder.plugins.langchain import EvaltapHandler
from evaltap.recorder.plugins.langchain_values import result_of, state_of
from evaltap.schemas.errors import InputError

_INTERRUPT: Final = "__interrupt__"
"""In the output of a graph that waits."""
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
            tool_names=tool_names(runnable),
        )

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation in a thread of its own."""
        if unknown := sorted(set(unit.state or ()).difference(self._inputs)):
            raise AgentError(f"the graph's state has no {unknown[0]!r}: {', '.join(self._inputs)}")
        if answers_for(self.abilities) is not None:
            install()
        yield _LangChainSession(self, unit, blocks=await self._blocks(unit))

    async def run(self, unit: Unit, given: Any, *, blocks: bool) -> Any:
        """Invoke the runnable once, on a thread if it blocks."""
        config: RunnableConfig = {
            "callbacks": [self._handler, ProviderToolGuard()],
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
        if isinstance(output, dict) and output.get(_INTERRUPT):
            calls = getattr((output.get("messages") or [None])[-1], "tool_calls", None)
            await_person(calls[0]["name"] if calls else "its interrupt")
        self._state = {**self._state, **state_of(output)}
        return answer_in(result_of(output))


_HANDOFF: Final = "__handoff_destination"
"""In the metadata of tools that only hand over, by the packages for swarms and supervisors."""
_COMMAND: Final = (
    "returns a command for the graph, which is not in a recording;"
    " --read-only lets it run, if it has no effect outside"
)
_FUNCTION_KEYS: Final = {
    "function",
    "functions",
    "function_declarations",
    "input_schema",
    "parameters",
    "toolSpec",
}
"""Found in a tool that a model is given as a dict, if the agent runs it; providers' own have none."""


def install() -> None:
    """Have all tools of the process ask, from now on: without answers they run as before."""
    if BaseTool.run is not _run:
        BaseTool.run = _run  # type: ignore[method-assign]
        BaseTool.arun = _arun  # type: ignore[method-assign]


_live_run: Final[Callable[..., Any]] = BaseTool.run
_live_arun: Final[Callable[..., Awaitable[Any]]] = BaseTool.arun


@functools.wraps(_live_run)
def _run(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
    return _live_run(_asking(self, tool_input, **kwargs), tool_input, *args, **kwargs)


@functools.wraps(_live_arun)
async def _arun(self: BaseTool, tool_input: Any, *args: Any, **kwargs: Any) -> Any:
    return await _live_arun(_asking(self, tool_input, **kwargs), tool_input, *args, **kwargs)


def _asking(
    tool: BaseTool, tool_input: Any, *, tool_call_id: str | None = None, **of_call: object
) -> BaseTool:
    """Return a copy of a tool for one call, whose arguments are those that the model sent."""
    if (answers := tool_answers()) is None:
        return tool
    if _HANDOFF in (tool.metadata or {}):
        answers.delegated(tool.name)
        return tool
    given = tool._filter_injected_args(tool_input) if isinstance(tool_input, dict) else tool_input

    def result(found: Any, written: Sequence[dict[str, Any]]) -> Any:
        """Return what the tool's body would return, or RUN."""
        if found is RUN:
            return RUN
        if written and (graphs := sys.modules.get("langgraph.types")) is not None:
            told = ToolMessage(found, tool_call_id=tool_call_id, name=tool.name)
            return graphs.Command(update={**written[0], "messages": [told]})
        if _returns_a_command(tool) and answers.unusable(tool.name, given, _COMMAND) is RUN:
            return RUN
        return (found, None) if tool.response_format == "content_and_artifact" else found

    @functools.wraps(tool._run)
    def run(*args: Any, **kwargs: Any) -> Any:
        written: list[dict[str, Any]] = []
        with _as_the_tool(tool):
            found = answers.answer(tool.name, given, writes=written.append)
        told = result(found, written)
        return tool._run(*args, **kwargs) if told is RUN else told

    @functools.wraps(tool._arun)
    async def arun(*args: Any, **kwargs: Any) -> Any:
        written: list[dict[str, Any]] = []
        with _as_the_tool(tool):
            found = await answers.answer_later(tool.name, given, writes=written.append)
        told = result(found, written)
        return await tool._arun(*args, **kwargs) if told is RUN else told

    copied = copy.copy(tool)
    # Past the model's own __setattr__, which takes fields only.
    object.__setattr__(copied, "_run", run)
    object.__setattr__(copied, "_arun", arun)
    return copied


class _RecordedToolException(RecordedError, ToolException):
    """A recorded failure of a tool that handles its failures."""


@contextmanager
def _as_the_tool(tool: BaseTool) -> Iterator[None]:
    """Have a recorded failure handled as the tool handles its own."""
    try:
        yield
    except RecordedError as error:
        raise (_RecordedToolException(str(error)) if tool.handle_tool_error else error) from None


def _returns_a_command(tool: BaseTool) -> bool:
    body = getattr(tool, "func", None) or getattr(tool, "coroutine", None)
    returned = str(getattr(body, "__annotations__", {}).get("return", ""))
    # Tools of MCP servers return a pair, whose first part is a command only if an interceptor makes it one.
    return "Command" in returned and not returned.startswith("tuple")


class ProviderToolGuard(BaseCallbackHandler):
    """Ends the run before a model is given tools that its provider runs: a graph does not tell of them."""

    raise_error = True
    run_inline = True

    def on_chat_model_start(self, serialized: Any, messages: Any, **kwargs: Any) -> None:
        """Look at the tools that the model is given."""
        answers = tool_answers()
        tools = (kwargs.get("invocation_params") or {}).get("tools") or ()
        for tool in tools if answers is not None and isinstance(tools, list) else ():
            if answers is not None and isinstance(tool, dict) and not _FUNCTION_KEYS & tool.keys():
                name = str(tool.get("name") or tool.get("type") or next(iter(tool), ""))
                miss(answers, f"its {by_provider(name)}", name)


def tool_names(runnable: Any) -> list[str] | None:  # Any: a runnable of any kind
    """Return the names of the tools in a graph and its sub-graphs; None for what is no graph."""
    if not hasattr(runnable, "get_subgraphs"):
        return None
    graphs = [runnable, *(graph for _, graph in runnable.get_subgraphs(recurse=True))]
    nodes = [node for graph in graphs for node in getattr(graph, "nodes", {}).values()]
    found = (getattr(getattr(node, "bound", None), "tools_by_name", {}) for node in nodes)
    return sorted({name for tools in found for name in tools})
