"""Google ADK 2.x: a plugin that records every run of a `Runner` or `App`.

    app = App(name="support", root_agent=agent, plugins=[EvaltapPlugin("log.db")])

Source: the callbacks of `google.adk.plugins.BasePlugin` in google-adk 2.13. Every callback returns
None, so ADK continues unchanged, and catches and counts its own faults.
"""

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from google.adk.plugins.base_plugin import BasePlugin

from evaltap.recorder.conventions.adk import unwrap_result
from evaltap.recorder.enclosing import Enclosing, enclosing, enter
from evaltap.recorder.observation import PAUSED, UNSEEN, Failure, Origin, RunStatus, failure_of
from evaltap.recorder.plugins.support import first_items, guarded, recorder_for
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import UNKNOWN, Tokens, tokens
from evaltap.schemas.chat.media import MediaPart, media
from evaltap.schemas.data import JsonObject

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types

ORIGIN = Origin(framework="google-adk", convention="google-adk-plugin")
MAX_RUNS = 10_000
"""Maximum tracked runs; beyond it the oldest is evicted, and the assembler closes it as idle."""
_HIDDEN_STATE = ("temp:",)


@dataclass(slots=True)
class _Run:
    """One invocation; a nested one belongs to the enclosing run (`parent`)."""

    observed: ObservedRun
    session_key: tuple[str, str, str]
    parent: str | None = None
    model: str | None = None
    calls: dict[int, tuple[str, Enclosing]] = field(default_factory=dict)
    """By its context, the key of each open tool call and the enclosing call to restore when it ends."""
    made: list[tuple[str | None, str]] = field(default_factory=list)
    """Ids and names of the calls."""


class EvaltapPlugin(BasePlugin):
    """Record every run as one turn of an eval case.

    `log` is the recorder's log; pass `recorder` instead to share one, which its owner then closes.
    `clock` returns nanoseconds since the epoch.
    """

    def __init__(
        self,
        log: str | None = None,
        *,
        recorder: Observing | None = None,
        name: str = "evaltap",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(name=name)
        self._owns_recorder = recorder is None
        self._recorder = recorder_for(log, recorder)
        self._clock = clock
        self._runs: dict[str, _Run] = {}

    async def on_user_message_callback(
        self, *, invocation_context: "InvocationContext", user_message: "types.Content"
    ) -> None:
        """Start the turn for this user message."""
        guarded(self, self._user_message, invocation_context, user_message)

    async def before_run_callback(self, *, invocation_context: "InvocationContext") -> None:
        """Start the turn if no user message did (a resumed run)."""
        guarded(self, self._begin, invocation_context)

    async def on_event_callback(
        self, *, invocation_context: "InvocationContext", event: "Event"
    ) -> None:
        """Record an agent's message."""
        guarded(self, self._agent_event, invocation_context, event)

    async def before_model_callback(
        self, *, callback_context: "CallbackContext", llm_request: "LlmRequest"
    ) -> None:
        """Record the model and its instructions."""
        guarded(self, self._model_called, callback_context, llm_request)

    async def after_model_callback(
        self, *, callback_context: "CallbackContext", llm_response: "LlmResponse"
    ) -> None:
        """Record the model call's usage."""
        guarded(self, self._model_returned, callback_context, llm_response)

    async def before_tool_callback(
        self, *, tool: "BaseTool", tool_args: JsonObject, tool_context: "ToolContext"
    ) -> None:
        """Record a tool call with a copy of its arguments."""
        guarded(self, self._tool_called, tool, tool_args, tool_context)

    async def after_tool_callback(
        self,
        *,
        tool: "BaseTool",
        tool_args: JsonObject,
        tool_context: "ToolContext",
        result: object,
    ) -> None:
        """Record a tool's result."""
        guarded(self, self._tool_returned, tool, tool_context, result)

    async def on_tool_error_callback(
        self,
        *,
        tool: "BaseTool",
        tool_args: JsonObject,
        tool_context: "ToolContext",
        error: BaseException,
    ) -> None:
        """Record a tool's exception."""
        guarded(self, self._tool_failed, tool, tool_context, error)

    async def after_run_callback(self, *, invocation_context: "InvocationContext") -> None:
        """End the turn."""
        guarded(self, self._ended, invocation_context, None)

    async def on_run_error_callback(
        self, *, invocation_context: "InvocationContext", error: BaseException
    ) -> None:
        """End the turn as failed."""
        guarded(self, self._ended, invocation_context, error)

    async def close(self) -> None:
        """End open turns as incomplete; close the recorder if this plugin created it."""
        guarded(self, self._close)

    def _user_message(self, context: "InvocationContext", message: "types.Content") -> None:
        self._close_unfinished(_session_key(context), context.invocation_id)
        run = self._begin(context)
        if run.parent is None:
            run.observed.user_message(_text(message, "\n"), list(_media(message)))
            run.observed.resumed = any(part.function_response for part in message.parts or ())

    def _begin(self, context: "InvocationContext") -> _Run:
        if (known := self._runs.get(context.invocation_id)) is not None:
            return known
        if (outer := enclosing(self._recorder)) is not None:
            run = _Run(outer[0], _session_key(context), outer[1])
        else:
            run = _Run(self._observed(context), _session_key(context))
        self._runs[context.invocation_id] = run
        while len(self._runs) > MAX_RUNS:
            del self._runs[next(iter(self._runs))]
        return run

    def _observed(self, context: "InvocationContext") -> ObservedRun:
        session = context.session
        return ObservedRun(
            self._recorder,
            ORIGIN,
            session_id=session.id,
            app_name=session.app_name,
            user_id=session.user_id,
            agent_name=context.agent.name if context.agent is not None else None,
            state=_state(context) or None,
            invocation_id=context.invocation_id,
            clock=self._clock,
        )

    def _close_unfinished(self, session_key: tuple[str, str, str], invocation_id: str) -> None:
        """End an unfinished run of the same session: it was cancelled or its caller abandoned it."""
        for known_id, run in list(self._runs.items()):
            if run.session_key == session_key and known_id != invocation_id:
                self._finish(known_id, "incomplete", None, "next_message")

    def _agent_event(self, context: "InvocationContext", event: "Event") -> None:
        run = self._runs.get(context.invocation_id)
        if run is None or run.parent is not None or event.partial or event.author == "user":
            return
        text, parts = _text(event.content, ""), list(_media(event.content))
        calls = event.get_function_calls()
        awaited = event.long_running_tool_ids or ()
        run.observed.awaits.update(_call_of(call) for call in calls if call.id in awaited)
        if text is not None or calls or parts:
            run.observed.agent_message(
                text,
                event.author,
                final=not calls,
                parts=parts,
                reasoning=_reasoning(event.content),
            )

    def _model_called(self, context: "CallbackContext", request: "LlmRequest") -> None:
        if (run := self._runs.get(context.invocation_id)) is not None:
            run.model = request.model
        if run is not None and run.parent is None:
            run.observed.context_message(_instruction(request.config.system_instruction))
            if run.observed.resumed and not run.observed.has_history:
                _record_given(run, request.contents, context.agent_name)
            run.observed.history(request.contents[:-1], _history_message)

    def _model_returned(self, context: "CallbackContext", response: "LlmResponse") -> None:
        run = self._runs.get(context.invocation_id)
        if run is None or response.partial:
            return
        used = _tokens(response.usage_metadata)
        run.observed.model_called(
            response.model_version or run.model,
            tokens=used,
            agent=context.agent_name,
        )

    def _tool_called(
        self, tool: "BaseTool", arguments: Mapping[str, object], context: "ToolContext"
    ) -> None:
        if (run := self._runs.get(context.invocation_id)) is None:
            return
        key = run.observed.tool_called(
            context.function_call_id,
            tool.name,
            arguments,
            agent=context.agent_name,
            parent=run.parent,
            generated_id=_call_id(tool, context),
        )
        run.made.append((context.function_call_id, tool.name))
        run.calls[id(context)] = key, enter((run.observed, key))

    def _tool_returned(self, tool: "BaseTool", context: "ToolContext", result: object) -> None:
        failure = None
        detect = getattr(tool, "_detect_error_in_response", None)
        if detect is not None and (kind := detect(result)) is not None:
            # ADK marks the tool's span as failed by the same check, so the plugin and the spans
            # agree.
            failure = Failure(type=str(kind))
        self._returned(tool, context, unwrap_result(result), failure)

    def _tool_failed(self, tool: "BaseTool", context: "ToolContext", error: BaseException) -> None:
        if isinstance(error, Exception):  # a cancelled call has neither result nor error
            self._returned(tool, context, UNSEEN, failure_of(error))

    def _returned(
        self, tool: "BaseTool", context: "ToolContext", result: object, failure: Failure | None
    ) -> None:
        if (run := self._runs.get(context.invocation_id)) is not None:
            key, around = run.calls.pop(id(context), (_call_id(tool, context), None))
            enter(around)
            run.observed.tool_returned(
                key, result, failure, state=context.actions.state_delta or None
            )

    def _ended(self, context: "InvocationContext", error: BaseException | None) -> None:
        failure = failure_of(error) if error is not None else None
        status: RunStatus = "ok" if error is None else "error"
        run = self._runs.get(context.invocation_id)
        if run is not None and run.parent is None:
            run.observed.state(_state(context))
            if isinstance(sys.exc_info()[1], GeneratorExit) and not run.observed.has_answer:
                # The caller left the loop over events early, which ADK takes for success.
                status = "incomplete"
        self._finish(context.invocation_id, status, failure, "run_ended")

    def _finish(
        self, invocation_id: str, status: RunStatus, failure: Failure | None, reason: str
    ) -> None:
        run = self._runs.pop(invocation_id, None)
        if run is not None and run.parent is None:
            has_paused = status == "ok" and run.observed.is_waiting
            run.observed.end(status, failure, PAUSED if has_paused else reason)

    def _close(self) -> None:
        for invocation_id in list(self._runs):
            self._finish(invocation_id, "incomplete", None, "shutdown")
        if self._owns_recorder:
            self._recorder.close()


def _record_given(run: _Run, contents: "Sequence[types.Content]", agent: str) -> None:
    """Record what a run goes on from after a pause: the user's last message, and the calls since then."""
    asked = [at for at, one in enumerate(contents) if one.role == "user" and _text(one, "")]
    if not asked:
        return
    before, question = contents[: asked[-1]], contents[asked[-1]]
    run.observed.history(before, _history_message)
    run.observed.user_message(_text(question, "\n"), list(_media(question)))
    _record_given_calls(
        run, [part for one in contents[asked[-1] :] for part in one.parts or ()], agent
    )


def _record_given_calls(run: _Run, parts: "Sequence[types.Part]", agent: str) -> None:
    answers = {(one.id, one.name): one for part in parts if (one := part.function_response)}
    calls = [part.function_call for part in parts if part.function_call]
    for number, call in enumerate(calls):
        name = call.name or ""
        if any(name == other and call.id in (None, known) for known, other in run.made):
            continue
        key = run.observed.tool_called(
            call.id,
            name,
            call.args or {},
            agent=agent,
            is_given=True,
            generated_id=f"{name}-{number}",
        )
        if (answer := answers.get((call.id, call.name))) is not None:
            run.observed.tool_returned(key, unwrap_result(answer.response))


def _call_of(call: "types.FunctionCall") -> str:
    """Return the id of a call, for ADK's own call for a confirmation that of the call to confirm."""
    original = (call.args or {}).get("originalFunctionCall")
    return str((isinstance(original, dict) and original.get("id")) or call.id)


def _call_id(tool: "BaseTool", context: "ToolContext") -> str:
    """Return the model's id for a call, or a generated one."""
    return context.function_call_id or f"{tool.name}-{id(context)}"


def _session_key(context: "InvocationContext") -> tuple[str, str, str]:
    session = context.session
    return session.app_name, session.user_id, session.id


def _state(context: "InvocationContext") -> JsonObject:
    """Return the session's state without the keys that last only for the run."""
    return {
        key: value
        for key, value in first_items(context.session.state)
        if not key.startswith(_HIDDEN_STATE)
    }


def _text(content: "types.Content | None", separator: str) -> str | None:
    """Return a content's text without the model's reasoning; None when it has none."""
    parts = (content.parts or []) if content is not None else []
    texts = [part.text for part in parts if part.text and not part.thought]
    return separator.join(texts) if texts else None


def _reasoning(content: "types.Content | None") -> str | None:
    """Return the model's reasoning."""
    parts = (content.parts or []) if content is not None else []
    return "\n".join(part.text for part in parts if part.text and part.thought) or None


def _tokens(usage: "types.GenerateContentResponseUsageMetadata | None") -> Tokens:
    """Return a call's usage: Gemini counts reasoning and results of its own tools apart.

    Providers behind LiteLLM include reasoning in the output; the total then leaves no room for it.
    """
    if usage is None:
        return UNKNOWN
    given, output = usage.prompt_token_count, usage.candidates_token_count
    thoughts, total = usage.thoughts_token_count or 0, usage.total_token_count
    if given is not None:
        given += usage.tool_use_prompt_token_count or 0
    if thoughts and (total is None or total >= (given or 0) + (output or 0) + thoughts):
        output = (output or 0) + thoughts
    return tokens(given, output, usage.cached_content_token_count)


def _instruction(given: object) -> str | None:
    """Return a request's system instruction as text."""
    if given is None or isinstance(given, str):
        return given
    parts = given if isinstance(given, list) else getattr(given, "parts", None) or [given]
    texts = [part if isinstance(part, str) else getattr(part, "text", None) for part in parts]
    return "\n\n".join(text for text in texts if text) or None


def _history_message(content: "types.Content") -> tuple[str, str | None]:
    """Return role and text of a content of the preceding conversation."""
    return "assistant" if content.role == "model" else "user", _text(content, "\n")


def _media(content: "types.Content | None") -> Iterator[MediaPart]:
    """Yield a content's images, audio, video and files, inline or by URL."""
    for part in (content.parts or []) if content is not None else []:
        blob, file = part.inline_data, part.file_data
        if blob is not None:
            yield media(mime_type=blob.mime_type, data=blob.data, filename=blob.display_name)
        elif file is not None:
            yield media(mime_type=file.mime_type, url=file.file_uri, filename=file.display_name)
