"""Google ADK: an agent or app, each unit with a runner and an in-memory session of its own.

In a replay, a plugin has a tool ask for its answer in place of running.  The tool is swapped, not answered by
the callback: its own callbacks, those for errors and the recorder see a call as live.
"""

import functools
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from google.adk.agents import BaseAgent, LlmAgent
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.adk.tools.agent_tool import AgentTool
from google.adk.tools.base_tool import BaseTool
from google.adk.tools.base_toolset import BaseToolset
from google.adk.tools.enterprise_search_tool import EnterpriseWebSearchTool
from google.adk.tools.exit_loop_tool import exit_loop
from google.adk.tools.google_maps_grounding_tool import GoogleMapsGroundingTool
from google.adk.tools.google_search_tool import GoogleSearchTool
from google.adk.tools.set_model_response_tool import SetModelResponseTool
from google.adk.tools.transfer_to_agent_tool import TransferToAgentTool
from google.adk.tools.url_context_tool import UrlContextTool
from google.adk.tools.vertex_ai_search_tool import VertexAiSearchTool
from google.genai import types

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
    system_texts,
)
from evaltap.recorder import Recorder
from evaltap.recorder.answering import RUN, RecordedError, tool_answers
from evaltap.recorder.plugins.adk import EvaltapPlugin

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.sessions import Session
    from google.adk.tools.tool_context import ToolContext

_APP: Final = "agent"
"""The app of an agent that has none, where the case names none either; it is not recorded."""
_USER: Final = "user"


def adapt(found: Any, recorder: Recorder) -> "AdkAgent | None":
    if isinstance(found, BaseAgent):
        return AdkAgent(App(name=_APP, root_agent=found), recorder)
    return AdkAgent(found, recorder) if isinstance(found, App) else None


class AdkAgent:
    """An app; a plugin of the recorder that it has is replaced by that of the experiment."""

    def __init__(self, app: App, recorder: Recorder) -> None:
        self._app, self._recorder = app, recorder
        self.abilities = Abilities(
            state=True,
            context=True,
            mocks=True,
            tool_names=tool_names(app.root_agent),
            unanswerable=unanswerable(app.root_agent),
        )

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation in a new session that has the unit's id, state and context."""
        recording = EvaltapPlugin(recorder=self._recorder)
        asking = [] if answers_for(self.abilities) is None else [AnsweringPlugin()]
        runner = self._runner(unit, [recording, *asking])
        session = await runner.session_service.create_session(
            app_name=runner.app_name,
            user_id=unit.user_id or _USER,
            session_id=unit.session_id,
            state=dict(unit.state or {}),
        )
        for message in unit.context:
            if message["role"] != "system":
                event = self._event(message["role"], message["content"])
                await runner.session_service.append_event(session, event)
        try:
            yield _AdkSession(runner, session)
        finally:
            await recording.close()  # ends a turn that was cancelled

    def _runner(self, unit: Unit, ours: Sequence[BasePlugin]) -> Runner:
        others = [one for one in self._app.plugins if not isinstance(one, EvaltapPlugin)]
        told = system_texts(unit.context)
        plugins = [*([_Instructions(told)] if told else []), *ours, *others]
        return Runner(
            app=self._app.model_copy(update={"plugins": plugins}),
            app_name=unit.app_name or None,
            session_service=InMemorySessionService(),
        )

    def _event(self, role: str, text: str) -> Event:
        agent = self._app.root_agent
        author = _USER if role == "user" or agent is None else agent.name
        return Event(author=author, content=_content(text, "user" if role == "user" else "model"))


_CONFIRMATION: Final = "adk_request_confirmation"
"""What the framework calls to have a person confirm a call; the run then ends."""


class _AdkSession:
    def __init__(self, runner: Runner, session: "Session") -> None:
        self._runner, self._session = runner, session

    async def answer(self, asked: Asked) -> str | None:
        words, calls = None, []
        async for event in self._runner.run_async(
            user_id=self._session.user_id,
            session_id=self._session.id,
            new_message=_content(asked.user, "user"),
        ):
            parts = (event.content.parts if event.content is not None else None) or ()
            texts = [one.text for one in parts if one.text and not one.thought]
            if texts and not event.partial:
                words = "".join(texts)
            calls += [one.function_call for one in parts if one.function_call is not None]
        if to_confirm := next((one for one in calls if one.name == _CONFIRMATION), None):
            asked_for = (to_confirm.args or {}).get("originalFunctionCall") or {}
            await_person(asked_for.get("name") or "a call")
        return answer_in(words)


class _Instructions(BasePlugin):
    """Adds the system messages of a case to the instructions of every model call."""

    def __init__(self, texts: list[str]) -> None:
        super().__init__(name="evaltap_context")
        self._texts = texts

    async def before_model_callback(
        self, *, callback_context: "CallbackContext", llm_request: "LlmRequest"
    ) -> None:
        llm_request.append_instructions(self._texts)


def _content(text: str, role: str) -> types.Content:
    return types.Content(role=role, parts=[types.Part(text=text)])


_BY_PROVIDER: Final = (
    EnterpriseWebSearchTool,
    GoogleMapsGroundingTool,
    GoogleSearchTool,
    UrlContextTool,
    VertexAiSearchTool,
)
_ELSEWHERE: Final = ("ManagedAgent", "RemoteA2aAgent")
"""Classes of agents whose tools run on another host; some need packages that are not installed."""
_RUN_HERE: Final = {"function_declarations", "computer_use"}
"""What a request says of tools that the provider does not run itself."""


class AnsweringPlugin(BasePlugin):
    """Has every tool of a run ask who answers it, also those of agents that work as tools."""

    NAME: Final = "evaltap_answers"

    def __init__(self) -> None:
        super().__init__(name=self.NAME)

    async def before_tool_callback(
        self, *, tool: BaseTool, tool_args: dict[str, Any], tool_context: "ToolContext"
    ) -> None:
        """Swap the tool, once: the object may outlive the run, and asks each time."""
        answers = tool_answers()
        if _is_of_the_framework(tool):
            if answers is not None:
                answers.delegated(tool.name)
        elif not isinstance(tool.run_async, _Asking):
            tool.run_async = _Asking(tool)  # type: ignore[method-assign]

    async def before_agent_callback(
        self, *, agent: BaseAgent, callback_context: "CallbackContext"
    ) -> None:
        """End the run before an agent that could not be looked at beforehand does what nobody sees."""
        answers = tool_answers()
        if answers is not None and (why := next(_own(agent), None)) is not None:
            miss(answers, f"its {why}", agent.name)

    async def before_model_callback(
        self, *, callback_context: "CallbackContext", llm_request: "LlmRequest"
    ) -> None:
        """End the run before a model is given tools that its provider runs, as toolsets may do."""
        answers = tool_answers()
        for tool in (llm_request.config.tools or ()) if answers is not None else ():
            given = tool.model_dump(exclude_none=True) if isinstance(tool, types.Tool) else {}
            if answers is not None and (names := sorted(given.keys() - _RUN_HERE)):
                miss(answers, f"its {by_provider(names[0])}", names[0])


def install() -> None:
    """Have all runners of the process ask, from now on: without answers their tools run as before."""
    if Runner.run_async is not _run_async:
        Runner.run_async = _run_async  # type: ignore[method-assign]


_live_run_async: Final[Callable[..., AsyncGenerator[Any, None]]] = Runner.run_async


@functools.wraps(_live_run_async)
def _run_async(self: Runner, *args: Any, **kwargs: Any) -> AsyncGenerator[Any, None]:
    plugins = self.plugin_manager
    if tool_answers() is not None and plugins.get_plugin(AnsweringPlugin.NAME) is None:
        plugins.register_plugin(AnsweringPlugin())
    return _live_run_async(self, *args, **kwargs)


class _Asking:
    """The `run_async` of a tool that may be answered."""

    def __init__(self, tool: BaseTool) -> None:
        self._tool, self._live = tool, tool.run_async

    async def __call__(self, *, args: dict[str, Any], tool_context: "ToolContext") -> Any:
        answers, found = tool_answers(), RUN
        try:
            if answers is not None:
                found = await answers.answer_later(
                    self._tool.name,
                    args,
                    agent=tool_context.agent_name,
                    writes=tool_context.state.update,
                )
        except RecordedError as error:
            if isinstance(error.result, dict):  # such as {"error": …}, which ended no run
                return error.result
            raise
        if found is RUN:
            return await self._live(args=args, tool_context=tool_context)
        return found


def _is_of_the_framework(tool: BaseTool) -> bool:
    """Return whether a call only directs the run: other agents, whose own tools are answered, or its end.

    An agent that plugins are kept from is a plain tool: the recorder sees no more of it either.
    """
    if isinstance(tool, AgentTool):
        return tool.include_plugins
    is_directing = isinstance(tool, SetModelResponseTool | TransferToAgentTool)
    return is_directing or getattr(tool, "func", None) is exit_loop


def unanswerable(root: object) -> list[str]:
    """Return the tools of an agent, and of those that it works with, that no recording can answer."""
    return [why for agent in _agents(root) for why in _own(agent)]


def tool_names(root: object) -> list[str] | None:
    """Return the names of the tools; None if a toolset only tells them in a run."""
    tools = [tool for agent in _agents(root) for tool in _tools(agent)]
    if any(isinstance(tool, BaseToolset) for tool in tools):
        return None
    names = [getattr(tool, "name", None) or getattr(tool, "__name__", None) for tool in tools]
    return sorted({name for name in names if isinstance(name, str)})


def _agents(root: object) -> list[BaseAgent]:
    found = [root] if isinstance(root, BaseAgent) else []
    for agent in found:
        inner = [getattr(tool, "agent", None) for tool in _tools(agent)]
        for one in (*agent.sub_agents, *inner):
            if isinstance(one, BaseAgent) and not any(one is known for known in found):
                found.append(one)
    return found


def _tools(agent: BaseAgent) -> list[Any]:  # functions, tools and toolsets
    return [*agent.tools] if isinstance(agent, LlmAgent) else []


def _own(agent: BaseAgent) -> Iterator[str]:
    if any(kind.__name__ in _ELSEWHERE for kind in type(agent).__mro__):
        yield f"agent {agent.name} runs elsewhere, where its tools cannot be answered from a recording"
    if isinstance(agent, LlmAgent) and agent.code_executor is not None:
        kind = type(agent.code_executor).__name__
        yield f"code executor {kind} cannot be answered from a recording"
    for tool in _tools(agent):
        if isinstance(tool, _BY_PROVIDER):
            yield by_provider(tool.name)
