"""Google ADK 2.x: a plugin that observes every run of a `Runner` or `App`.

    app = App(name="support", root_agent=agent, plugins=[EvaltapPlugin("log.db")])

Source: the callbacks of `google.adk.plugins.BasePlugin` in google-adk 2.13.  Every callback returns
None, which tells ADK to carry on unchanged, and swallows and counts its own faults.  Arguments are
copied when they are seen, since tools may change them.
"""

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from google.adk.plugins.base_plugin import BasePlugin
from opentelemetry import trace

from evaltap.recorder.conventions.adk import unwrap_result
from evaltap.recorder.observation import (
    Failure,
    ModelCalled,
    Observation,
    Origin,
    Responded,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.recording import Recording
from evaltap.recorder.telemetry import plain

if TYPE_CHECKING:
    from google.adk.agents.callback_context import CallbackContext
    from google.adk.agents.invocation_context import InvocationContext
    from google.adk.events.event import Event
    from google.adk.models.llm_request import LlmRequest
    from google.adk.models.llm_response import LlmResponse
    from google.adk.tools.base_tool import BaseTool
    from google.adk.tools.tool_context import ToolContext
    from google.genai import types

FRAMEWORK = "google-adk"
CONVENTION = "google-adk-plugin"
MAX_RUNS = 10_000
"""Runs whose state is kept; the oldest is given up beyond it (the assembler closes it as idle)."""
_HIDDEN_STATE = ("temp:",)


@dataclass(slots=True)
class _Run:
    """One invocation; a nested one speaks for the run around it."""

    run_id: str
    session_key: tuple[str, str, str]
    nested: bool = False
    parent_call_id: str | None = None
    answer: tuple[int, str] | None = None
    """The last words that may be the final answer, and when they were said."""
    open_calls: dict[str, int] = field(default_factory=dict)
    model: str | None = None


_ENCLOSING: ContextVar[tuple[str, str] | None] = ContextVar("evaltap_adk_enclosing", default=None)
"""Invocation id and call id of the tool that runs in this context."""


class EvaltapPlugin(BasePlugin):
    """Record every run as one turn of an eval case.

    `log` is where turns go, as the recorder takes it; pass `recorder` instead to share one, which
    its owner then closes.  `clock` returns nanoseconds since the epoch.
    """

    def __init__(
        self,
        log: str | None = None,
        *,
        recorder: Recording | None = None,
        name: str = "evaltap",
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        super().__init__(name=name)
        self._owns_recorder = recorder is None
        if recorder is None:
            from evaltap.recorder.recorder import Recorder

            recorder = Recorder(log)
        self._recorder = recorder
        self._clock = clock
        self._runs: dict[str, _Run] = {}

    async def on_user_message_callback(
        self, *, invocation_context: "InvocationContext", user_message: "types.Content"
    ) -> None:
        """Begin the turn that this message opens."""
        self._guard(self._user_message, invocation_context, user_message)

    async def before_run_callback(self, *, invocation_context: "InvocationContext") -> None:
        """Begin the turn when no message did (a resumed run)."""
        self._guard(self._begin, invocation_context)

    async def on_event_callback(
        self, *, invocation_context: "InvocationContext", event: "Event"
    ) -> None:
        """Note what an agent said."""
        self._guard(self._said, invocation_context, event)

    async def before_model_callback(
        self, *, callback_context: "CallbackContext", llm_request: "LlmRequest"
    ) -> None:
        """Note which model is called."""
        self._guard(self._model_called, callback_context, llm_request)

    async def after_model_callback(
        self, *, callback_context: "CallbackContext", llm_response: "LlmResponse"
    ) -> None:
        """Note what the call cost."""
        self._guard(self._model_returned, callback_context, llm_response)

    async def before_tool_callback(
        self, *, tool: "BaseTool", tool_args: dict[str, Any], tool_context: "ToolContext"
    ) -> None:
        """Note a tool call with a copy of its arguments."""
        self._guard(self._tool_called, tool, tool_args, tool_context)

    async def after_tool_callback(
        self,
        *,
        tool: "BaseTool",
        tool_args: dict[str, Any],
        tool_context: "ToolContext",
        result: Any,
    ) -> None:
        """Note a tool's result."""
        self._guard(self._tool_returned, tool, tool_context, result)

    async def on_tool_error_callback(
        self,
        *,
        tool: "BaseTool",
        tool_args: dict[str, Any],
        tool_context: "ToolContext",
        error: BaseException,
    ) -> None:
        """Note that a tool raised."""
        self._guard(self._tool_failed, tool_context, error)

    async def after_run_callback(self, *, invocation_context: "InvocationContext") -> None:
        """End the turn."""
        self._guard(self._ended, invocation_context, None)

    async def on_run_error_callback(
        self, *, invocation_context: "InvocationContext", error: BaseException
    ) -> None:
        """End the turn as failed."""
        self._guard(self._ended, invocation_context, error)

    async def close(self) -> None:
        """End the turns that are still open as incomplete; close the recorder if it is ours."""
        self._guard(self._close)

    def _guard(self, step: Callable[..., object], *arguments: Any) -> None:
        try:
            step(*arguments)
        except Exception as error:
            # Whatever goes wrong here must not reach the agent; the recorder counts and logs it.
            self._recorder.report_fault(f"EvaltapPlugin.{step.__name__.lstrip('_')}", error)

    def _user_message(self, context: "InvocationContext", message: "types.Content") -> None:
        self._close_unfinished(_session_key(context), context.invocation_id)
        run = self._begin(context)
        if not run.nested:
            text = _words(message, "\n")
            capture = {} if text is not None else {"userContent": "missing"}
            self._observe(UserMessage(run.run_id, self._clock(), text, capture))

    def _begin(self, context: "InvocationContext") -> _Run:
        known = self._runs.get(context.invocation_id)
        if known is not None:
            return known
        run = self._nested(context)
        if run is None:
            # A resumed invocation keeps its id; the time tells its turns apart.
            now = self._clock()
            run = _Run(f"{context.invocation_id}-{now}", _session_key(context))
        self._runs[context.invocation_id] = run
        while len(self._runs) > MAX_RUNS:
            del self._runs[next(iter(self._runs))]
        if not run.nested:
            self._observe_start(run, context)
        return run

    def _nested(self, context: "InvocationContext") -> _Run | None:
        enclosing = _ENCLOSING.get()
        outer = self._runs.get(enclosing[0]) if enclosing is not None else None
        if enclosing is None or outer is None or enclosing[1] not in outer.open_calls:
            return None
        return _Run(outer.run_id, _session_key(context), nested=True, parent_call_id=enclosing[1])

    def _observe_start(self, run: _Run, context: "InvocationContext") -> None:
        session = context.session
        span = trace.get_current_span().get_span_context()
        state = {
            str(key): plain(value)
            for key, value in dict(session.state).items()
            if not str(key).startswith(_HIDDEN_STATE)
        }
        self._observe(
            RunStarted(
                run.run_id,
                self._clock(),
                session_id=session.id,
                app_name=session.app_name,
                user_id=session.user_id,
                agent_name=context.agent.name if context.agent is not None else None,
                state=state or None,
                origin=Origin(None, FRAMEWORK, CONVENTION),
                trace_id=format(span.trace_id, "032x") if span.is_valid else None,
                root_span_id=format(span.span_id, "016x") if span.is_valid else None,
                invocation_id=context.invocation_id,
            )
        )

    def _close_unfinished(self, session_key: tuple[str, str, str], invocation_id: str) -> None:
        """End a run of the same session that never ended: it was cancelled, or lost its caller."""
        for known_id, run in list(self._runs.items()):
            if run.session_key == session_key and known_id != invocation_id:
                self._finish(known_id, run, "incomplete", None, "next_message")

    def _said(self, context: "InvocationContext", event: "Event") -> None:
        run = self._runs.get(context.invocation_id)
        if run is None or run.nested or event.partial or event.author == "user":
            return
        text = _words(event.content, "")
        calls = event.get_function_calls()
        if text is None and not calls:
            return
        now = self._clock()
        self._demote(run)
        if text is None:
            return
        if calls:
            self._observe(ModelCalled(run.run_id, now, text=text, agent_name=event.author))
        else:
            run.answer = now, text

    def _demote(self, run: _Run) -> None:
        """Make the words that were the answer so far intermediate, since more followed them."""
        if run.answer is not None:
            said_ns, text = run.answer
            self._observe(ModelCalled(run.run_id, said_ns, text=text))
            run.answer = None

    def _model_called(self, context: "CallbackContext", request: "LlmRequest") -> None:
        run = self._runs.get(context.invocation_id)
        if run is not None:
            run.model = request.model

    def _model_returned(self, context: "CallbackContext", response: "LlmResponse") -> None:
        run = self._runs.get(context.invocation_id)
        if run is None or response.partial:
            return
        usage = response.usage_metadata
        self._observe(
            ModelCalled(
                run.run_id,
                self._clock(),
                model=response.model_version or run.model,
                input_tokens=usage.prompt_token_count if usage is not None else None,
                output_tokens=usage.candidates_token_count if usage is not None else None,
                agent_name=context.agent_name,
            )
        )

    def _tool_called(
        self, tool: "BaseTool", arguments: Mapping[str, Any], context: "ToolContext"
    ) -> None:
        run = self._runs.get(context.invocation_id)
        if run is None:
            return
        now, call_id = self._clock(), context.function_call_id or f"{tool.name}-{id(context)}"
        run.open_calls[call_id] = now
        _ENCLOSING.set((context.invocation_id, call_id))
        self._observe(
            ToolCalled(
                run.run_id,
                now,
                call_id,
                tool.name,
                arguments=plain(arguments),
                agent_name=context.agent_name,
                parent_call_id=run.parent_call_id,
                id_known=context.function_call_id is not None,
                capture={} if context.function_call_id is not None else {"id": "missing"},
            )
        )

    def _tool_returned(self, tool: "BaseTool", context: "ToolContext", result: Any) -> None:
        failure = None
        detect = getattr(tool, "_detect_error_in_response", None)
        if detect is not None and (kind := detect(result)) is not None:
            # ADK marks the tool's span as failed by this very question; so the two agree.
            failure = Failure(type=str(kind))
        self._returned(tool, context, plain(unwrap_result(result)), failure)

    def _tool_failed(self, context: "ToolContext", error: BaseException) -> None:
        self._returned(None, context, None, Failure(type(error).__name__, str(error)))

    def _returned(
        self,
        tool: "BaseTool | None",
        context: "ToolContext",
        result: Any,
        failure: Failure | None,
    ) -> None:
        run = self._runs.get(context.invocation_id)
        call_id = context.function_call_id or (f"{tool.name}-{id(context)}" if tool else "")
        if run is None:
            return
        now = self._clock()
        begun = run.open_calls.pop(call_id, None)
        enclosing = _ENCLOSING.get()
        if enclosing is not None and enclosing[1] == call_id:
            _ENCLOSING.set(None)
        duration = (now - begun) / 1e6 if begun is not None else None
        self._observe(
            ToolReturned(
                run.run_id, now, call_id, result=result, failure=failure, duration_ms=duration
            )
        )

    def _ended(self, context: "InvocationContext", error: BaseException | None) -> None:
        run = self._runs.get(context.invocation_id)
        if run is None:
            return
        failure = Failure(type(error).__name__, str(error)) if error is not None else None
        status = "ok" if error is None else "error"
        self._finish(context.invocation_id, run, status, failure, "run_ended")

    def _finish(
        self, invocation_id: str, run: _Run, status: Any, failure: Failure | None, reason: str
    ) -> None:
        del self._runs[invocation_id]
        if run.nested:
            return
        if status == "error":
            self._demote(run)
        elif run.answer is not None:
            self._observe(Responded(run.run_id, *run.answer))
        self._observe(RunEnded(run.run_id, self._clock(), status, failure, reason))

    def _close(self) -> None:
        for invocation_id, run in list(self._runs.items()):
            self._finish(invocation_id, run, "incomplete", None, "shutdown")
        if self._owns_recorder:
            self._recorder.close()

    def _observe(self, observation: Observation) -> None:
        self._recorder.observe(observation)


def _session_key(context: "InvocationContext") -> tuple[str, str, str]:
    session = context.session
    return session.app_name, session.user_id, session.id


def _words(content: "types.Content | None", joint: str) -> str | None:
    """Return what a content says, without the model's thoughts; None when it says nothing."""
    parts = (content.parts or []) if content is not None else []
    texts = [part.text for part in parts if part.text and not part.thought]
    return joint.join(texts) if texts else None
