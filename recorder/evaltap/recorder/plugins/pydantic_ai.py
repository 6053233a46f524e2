"""pydantic-ai: a capability that records every run of an agent.

    agent = Agent(model, capabilities=[EvaltapCapability("log.db")])

Source: the hooks of `pydantic_ai.capabilities.AbstractCapability` in pydantic-ai-slim 2.68. Every
hook passes its value or exception on unchanged. An agent that runs inside another agent's tool is
part of the enclosing turn if both have the capability.
"""

import time
from collections.abc import Callable, Container, Sequence
from typing import TYPE_CHECKING

from pydantic_ai.capabilities import AbstractCapability
from pydantic_ai.exceptions import (
    ApprovalRequired,
    CallDeferred,
    ModelRetry,
    SkipToolExecution,
    ToolRetryError,
)
from pydantic_ai.messages import (
    ModelResponse,
    NativeToolCallPart,
    NativeToolReturnPart,
    SystemPromptPart,
    TextPart,
    ToolReturn,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.tools import DeferredToolRequests
from pydantic_core import ValidationError

from evaltap.recorder.enclosing import enclosing, inside
from evaltap.recorder.observation import PAUSED, UNSEEN, Failure, Origin, failure_of
from evaltap.recorder.plugins.support import guarded, recorder_for, release, text_of
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import tokens
from evaltap.schemas.chat.evidence import decode
from evaltap.schemas.chat.media import Kind, MediaPart, media
from evaltap.schemas.data import JsonObject

if TYPE_CHECKING:
    from pydantic_ai import RunContext
    from pydantic_ai.capabilities.abstract import WrapRunHandler, WrapToolExecuteHandler
    from pydantic_ai.messages import ModelMessage, RetryPromptPart, ToolCallPart
    from pydantic_ai.models import ModelRequestContext
    from pydantic_ai.run import AgentRunResult
    from pydantic_ai.tools import ToolDefinition

ORIGIN = Origin(framework="pydantic-ai", convention="pydantic-ai-capability")
_DEFERRALS = (ApprovalRequired, CallDeferred)


class _Level:
    """One agent run; a nested one belongs to the enclosing run."""

    def __init__(self, run: ObservedRun, parent: str | None, agent: str | None) -> None:
        self.run, self.parent, self.agent = run, parent, agent
        self.requested: dict[str, ToolCallPart] = {}
        """Calls requested by the model that no hook has reported."""
        self.keys: dict[str, str] = {}
        """By id, the key of the call that the model requested last."""

    @property
    def nested(self) -> bool:
        """Whether this run is the work of another run's tool."""
        return self.parent is not None


class EvaltapCapability(AbstractCapability[object]):
    """Record every run as one turn of an eval case; the conversation id is the session.

    `log` is the recorder's log; pass `recorder` instead to share one. One instance may serve any
    number of agents. `clock` returns nanoseconds since the epoch.
    """

    def __init__(
        self,
        log: str | None = None,
        *,
        recorder: Observing | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self._owns_recorder = recorder is None
        self._recorder = recorder_for(log, recorder)
        self._clock = clock
        self._levels: dict[str | None, _Level] = {}

    def close(self) -> None:
        """Write everything in memory; close the recorder if this plugin created it."""
        release(self._recorder, owned=self._owns_recorder)

    async def wrap_run(
        self, ctx: "RunContext[object]", *, handler: "WrapRunHandler"
    ) -> "AgentRunResult[object]":
        """Record a run from start to end, whatever the outcome."""
        guarded(self, self._started, ctx)
        try:
            result = await handler()
        except BaseException as error:
            guarded(self, self._failed, ctx, error)
            raise
        guarded(self, self._finished, ctx, result)
        return result

    async def after_model_request(
        self,
        ctx: "RunContext[object]",
        *,
        request_context: "ModelRequestContext",
        response: ModelResponse,
    ) -> ModelResponse:
        """Record a model call's message and usage."""
        guarded(self, self._responded, ctx, request_context, response)
        return response

    async def wrap_tool_execute(
        self,
        ctx: "RunContext[object]",
        *,
        call: "ToolCallPart",
        tool_def: "ToolDefinition",
        args: JsonObject,
        handler: "WrapToolExecuteHandler",
    ) -> object:
        """Record a tool call from start to end."""
        level = self._levels.get(ctx.run_id)
        key = guarded(self, self._called, level, call) if level is not None else None
        if level is None or key is None:
            return await handler(args)
        try:
            with inside(level.run, key):
                result = await handler(args)
        except BaseException as error:
            guarded(self, self._tool_failed, level, key, error)
            raise
        guarded(self, self._returned, level, key, result)
        return result

    async def on_tool_validate_error(
        self,
        ctx: "RunContext[object]",
        *,
        call: "ToolCallPart",
        tool_def: "ToolDefinition",
        args: object,
        error: ValidationError | ModelRetry,
    ) -> JsonObject:
        """Record a call that never ran because its arguments were invalid."""
        guarded(self, self._refused, self._levels.get(ctx.run_id), call, tool_def, error)
        raise error

    def _started(self, ctx: "RunContext[object]") -> None:
        agent = ctx.agent.name if ctx.agent is not None else None
        if (around := enclosing(self._recorder)) is not None:
            self._levels[ctx.run_id] = _Level(*around, agent)
            return
        run = ObservedRun(
            self._recorder,
            ORIGIN,
            session_id=ctx.conversation_id,
            agent_name=agent,
            invocation_id=ctx.run_id,
            clock=self._clock,
        )
        self._levels[ctx.run_id] = _Level(run, None, agent)
        run.user_message(_prompt(ctx.prompt), _media(ctx.prompt))

    def _finished(self, ctx: "RunContext[object]", result: "AgentRunResult[object]") -> None:
        if (level := self._levels.pop(ctx.run_id, None)) is None:
            return
        self._catch_up(level, result.new_messages())
        self._not_run(level)
        if level.nested:
            return
        if isinstance(result.output, DeferredToolRequests):
            level.run.end(reason=PAUSED)
            return
        level.run.framework_result(text_of(result.output))
        level.run.end()

    def _failed(self, ctx: "RunContext[object]", error: BaseException) -> None:
        if (level := self._levels.pop(ctx.run_id, None)) is None:
            return
        self._not_run(level)
        if not level.nested:
            level.run.end_with(error)

    def _responded(
        self,
        ctx: "RunContext[object]",
        request_context: "ModelRequestContext",
        response: ModelResponse,
    ) -> None:
        if (level := self._levels.get(ctx.run_id)) is None:
            return
        messages = request_context.messages
        output_tools = {tool.name for tool in request_context.model_request_parameters.output_tools}
        self._catch_up(level, messages)
        if not level.nested:
            self._record_context(level.run, messages)
            if not level.run.has_user_message:
                self._record_given(level, messages, output_tools)
            if not level.run.has_history:
                own = sum(one.run_id == ctx.run_id for one in messages)
                level.run.history(messages[: -own or None], _history_message)
        usage = response.usage
        used = tokens(
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
        )
        level.run.model_called(
            response.model_name or request_context.model.model_name,
            tokens=used,
            agent=level.agent,
        )
        if not level.nested:
            parts = response.parts
            words = "".join(part.content for part in parts if isinstance(part, TextPart))
            thoughts = "\n".join(part.content for part in parts if part.part_kind == "thinking")
            level.run.agent_message(
                words or None,
                level.agent,
                final=not response.tool_calls,
                reasoning=thoughts or None,
                parts=_media([part.content for part in parts if part.part_kind == "file"]),
            )
        self._native_tools(level, response)
        for call in response.tool_calls:
            level.keys[call.tool_call_id] = level.run.call_key(call.tool_call_id)
            if call.tool_name not in output_tools:
                level.requested[call.tool_call_id] = call

    def _catch_up(self, level: _Level, messages: "Sequence[ModelMessage]") -> None:
        """Record the calls that the framework answered itself, such as those of unknown tools."""
        if not level.requested:
            return
        # The last one: an earlier call may have the same id.
        results = {
            part.tool_call_id: part
            for message in messages
            for part in message.parts
            if isinstance(part, ToolReturnPart) or part.part_kind == "retry-prompt"
        }
        for call_id, part in results.items():
            if call_id in level.requested:
                key = self._called(level, level.requested[call_id])
                level.run.tool_returned(key, part.content, _refusal(part))

    def _record_given(
        self, level: _Level, messages: "Sequence[ModelMessage]", output_tools: Container[str]
    ) -> None:
        """Record what a run without a prompt goes on from: the user's last message, and calls since then."""
        prompts = [
            (place, part)
            for place, message in enumerate(messages)
            for part in message.parts
            if isinstance(part, UserPromptPart)
        ]
        if not prompts:
            return
        place, prompt = prompts[-1]
        level.run.history(messages[:place], _history_message)
        level.run.user_message(_prompt(prompt.content), _media(prompt.content))
        parts = [part for message in messages[place:] for part in message.parts]
        results = {
            part.tool_call_id: part
            for part in parts
            if isinstance(part, ToolReturnPart) or part.part_kind == "retry-prompt"
        }
        for part in parts:
            if part.part_kind != "tool-call" or part.tool_name in output_tools:
                continue
            level.run.resumed = True
            if part.tool_call_id in level.keys:
                continue
            key = self._called(level, part, is_given=True)
            if (result := results.get(part.tool_call_id)) is not None:
                level.run.tool_returned(key, result.content, _refusal(result))

    @staticmethod
    def _record_context(run: ObservedRun, messages: "Sequence[ModelMessage]") -> None:
        """Record the system prompts (the first message) and the instructions (the last)."""
        for part in messages[0].parts if messages else ():
            if isinstance(part, SystemPromptPart):
                run.context_message(part.content)
        run.context_message(getattr(messages[-1], "instructions", None) if messages else None)

    def _not_run(self, level: _Level) -> None:
        """Record deferred calls and calls cut off by the end of the run."""
        for call in list(level.requested.values()):
            self._called(level, call)

    def _native_tools(self, level: _Level, response: ModelResponse) -> None:
        """Record the tools that the model's provider ran itself, between two texts of one response."""
        for part in response.parts:
            if isinstance(part, NativeToolCallPart):
                level.keys[part.tool_call_id] = level.run.call_key(part.tool_call_id)
                self._called(level, part)
            elif isinstance(part, NativeToolReturnPart):
                key = level.keys.get(part.tool_call_id, part.tool_call_id)
                level.run.tool_returned(key, part.content)

    def _called(
        self, level: _Level, call: "ToolCallPart | NativeToolCallPart", *, is_given: bool = False
    ) -> str:
        """Record a call and return its key; one that no model has requested again is a retry."""
        level.requested.pop(call.tool_call_id, None)
        arguments = decode(call.args) if call.args is not None else None
        key = level.keys[call.tool_call_id] = level.run.tool_called(
            call.tool_call_id,
            call.tool_name,
            # Keep arguments that are not JSON as the model wrote them.
            {} if arguments is None else call.args if arguments.flaw else arguments.value,
            agent=level.agent,
            parent=level.parent,
            is_given=is_given,
            key=level.keys.get(call.tool_call_id),
        )
        return key

    def _returned(self, level: _Level, key: str, result: object) -> None:
        value = result.return_value if isinstance(result, ToolReturn) else result
        level.run.tool_returned(key, value)

    def _tool_failed(self, level: _Level, key: str, error: BaseException) -> None:
        # A deferred call is answered in another run, a cancelled one never.
        if isinstance(error, _DEFERRALS) or not isinstance(error, Exception):
            return
        if isinstance(error, SkipToolExecution):
            level.run.tool_returned(key, error.result)
            return
        level.run.tool_returned(key, *_failure_message(error))

    def _refused(
        self,
        level: _Level | None,
        call: "ToolCallPart",
        tool_def: "ToolDefinition",
        error: Exception,
    ) -> None:
        if level is not None and tool_def.kind != "output":
            level.run.tool_returned(self._called(level, call), *_failure_message(error))


def _refusal(part: "ToolReturnPart | RetryPromptPart") -> Failure | None:
    """Return why the framework did not make a call, if the model is told that it failed."""
    # Version 1 has a part for it instead of an outcome.
    if part.part_kind != "retry-prompt" and part.outcome not in ("failed", "retried"):
        return None
    return Failure(message=part.content if isinstance(part.content, str) else None)


def _failure_message(error: Exception) -> tuple[object, Failure]:
    """Return the failure and the message about it that the model gets, if any.

    A tool that requests a retry raises `ModelRetry`, which the framework wraps.
    """
    if isinstance(error, ValidationError):
        return error.errors(include_url=False, include_context=False), failure_of(error)
    if isinstance(error, ModelRetry):
        return error.message, Failure("ModelRetry", error.message)
    if isinstance(error, ToolRetryError):
        retried = isinstance(error.__cause__, ModelRetry)
        failure = failure_of(error)
        message = error.tool_retry.content
        return message, Failure("ModelRetry", failure.message) if retried else failure
    # `ToolFailedError`, which version 1 does not have.
    failed = getattr(error, "tool_failed", None)
    return UNSEEN if failed is None else failed.content, failure_of(error)


def _prompt(prompt: "str | Sequence[object] | None") -> str | None:
    """Return a prompt's text, without images and files."""
    if prompt is None or isinstance(prompt, str):
        return prompt
    words = [part if isinstance(part, str) else getattr(part, "content", None) for part in prompt]
    texts = [part for part in words if isinstance(part, str)]
    return "\n".join(texts) if texts else None


def _history_message(message: "ModelMessage") -> tuple[str, str]:
    """Return role and text of a message of the preceding conversation."""
    if isinstance(message, ModelResponse):
        return "assistant", "".join(p.content for p in message.parts if isinstance(p, TextPart))
    prompts = (_prompt(part.content) for part in message.parts if isinstance(part, UserPromptPart))
    return "user", "\n".join(text for text in prompts if text)


def _media(prompt: "str | Sequence[object] | None") -> list[MediaPart]:
    """Return a prompt's images, audio, video and files."""
    parts = prompt if prompt is not None and not isinstance(prompt, str) else ()
    return [_medium(part) for part in parts if getattr(part, "kind", None) in _MEDIA]


def _medium(part: object) -> MediaPart:
    fields = vars(part)
    return media(
        kind=_MEDIA[getattr(part, "kind", "")],
        # The URL's own property would guess the type from the file name.
        mime_type=fields.get("media_type") or fields.get("_media_type"),
        url=fields.get("url"),
        data=fields.get("data"),
        file_id=fields.get("file_id"),
    )


_MEDIA: dict[str, Kind | None] = {
    "binary": None,
    "image-url": "image",
    "audio-url": "audio",
    "video-url": "video",
    "document-url": "file",
    "uploaded-file": None,
}
