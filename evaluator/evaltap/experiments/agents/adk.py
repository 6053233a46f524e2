"""Google ADK: an agent or app, each unit with a runner and an in-memory session of its own."""

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

from google.adk.agents import BaseAgent
from google.adk.apps import App
from google.adk.events.event import Event
from google.adk.plugins.base_plugin import BasePlugin
from google.adk.runners import Runner
from google.adk.sessions import InMemorySessionService
from google.genai import types

from evaltap.experiments.agents.answering import adk as answering
from evaltap.experiments.agents.base import (
    Abilities,
    AgentSession,
    Asked,
    Unit,
    answer_in,
    answers_for,
    system_texts,
)
from evaltap.recorder import Recorder
from evaltap.recorder.plugins.adk import EvaltapPlugin

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.models.llm_request import LlmRequest
    from google.adk.sessions import Session

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
            tool_names=answering.tool_names(app.root_agent),
            unanswerable=answering.unanswerable(app.root_agent),
        )

    @asynccontextmanager
    async def session(self, unit: Unit) -> AsyncIterator[AgentSession]:
        """Return a conversation in a new session that has the unit's id, state and context."""
        recording = EvaltapPlugin(recorder=self._recorder)
        asking = [] if answers_for(self.abilities) is None else [answering.AnsweringPlugin()]
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


class _AdkSession:
    def __init__(self, runner: Runner, session: "Session") -> None:
        self._runner, self._session = runner, session

    async def answer(self, asked: Asked) -> str | None:
        words = None
        async for event in self._runner.run_async(
            user_id=self._session.user_id,
            session_id=self._session.id,
            new_message=_content(asked.user, "user"),
        ):
            parts = (event.content.parts if event.content is not None else None) or ()
            texts = [one.text for one in parts if one.text and not one.thought]
            if texts and not event.partial:
                words = "".join(texts)
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
