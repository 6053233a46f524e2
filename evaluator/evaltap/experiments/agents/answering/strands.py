"""Strands: hooks that have a tool answered by a stand-in, and end a run after a miss."""

import functools
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any, Final
from weakref import WeakSet

from strands import Agent
from strands.hooks import BeforeModelCallEvent, BeforeToolCallEvent, HookProvider, HookRegistry
from strands.types.events import ToolResultEvent
from strands.types.tools import AgentTool, ToolResult, ToolResultContent, ToolSpec, ToolUse

from evaltap.experiments.agents.base import by_provider
from evaltap.recorder.answering import RUN, RecordedError, ToolMiss, tool_answers

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
