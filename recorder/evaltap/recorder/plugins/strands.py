"""Strands Agents: hooks that record every invocation of an agent, graph or swarm.

    agent = Agent(model, tools=[...], hooks=[EvaltapHooks("log.db")])

Source: the events of `strands.hooks` in strands-agents 1.62. The hooks modify none of them. An
agent inside another agent's tool, and the agents of a graph or swarm, are part of the enclosing
turn if all of them have the hooks.
"""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from strands.hooks import (
    AfterInvocationEvent,
    AfterMultiAgentInvocationEvent,
    AfterToolCallEvent,
    BeforeInvocationEvent,
    BeforeMultiAgentInvocationEvent,
    BeforeToolCallEvent,
    HookProvider,
    HookRegistry,
    MessageAddedEvent,
)
from strands.types.content import ContentBlock, Message
from strands.types.tools import ToolResultContent, ToolUse

from evaltap.recorder.enclosing import Enclosing, enclosing, enter
from evaltap.recorder.observation import Failure, Origin, failure_of
from evaltap.recorder.plugins.support import (
    first_items,
    first_of,
    guarded,
    recorder_for,
    release,
    text_of,
)
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import tokens
from evaltap.schemas.chat.media import MediaPart, media_in
from evaltap.schemas.data import JsonObject

if TYPE_CHECKING:
    from strands import Agent
    from strands.agent import AgentResult

ORIGIN = Origin(framework="strands-agents", convention="strands-hooks")
SESSION_KEYS = ("session.id", "session_id", "gen_ai.conversation.id", "conversation_id")
"""Keys for the session id in an invocation's arguments and an agent's trace attributes."""
USER_KEYS = ("user.id", "user_id")
MAX_OPEN = 10_000
"""Maximum tracked open invocations; beyond it the oldest is evicted."""

_USAGE = ("inputTokens", "outputTokens", "cacheReadInputTokens", "cacheWriteInputTokens")
_ORCHESTRATED: ContextVar[ObservedRun | None] = ContextVar("evaltap_strands_run", default=None)
"""The run of the current graph or swarm."""


@dataclass(slots=True)
class _Level:
    """One invocation: a turn (`owned`), a part of one, or the work of one of its tools (`parent`)."""

    run: ObservedRun
    owned: bool
    parent: str | None = None
    outer_error: BaseException | None = None
    """The exception being handled when it started: not its own."""
    outer_run: ObservedRun | None = None
    """The run of the enclosing graph or swarm, if this is itself one."""
    keys: dict[str, str] = field(default_factory=dict)
    """By id, the key of the call that the model requested last."""
    calls: dict[str, Enclosing] = field(default_factory=dict)
    """For each open tool call, the enclosing call to restore when it ends."""


class EvaltapHooks(HookProvider):
    """Record every invocation as one turn of an eval case.

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
        self._levels: dict[int, _Level] = {}

    def close(self) -> None:
        """Write everything in memory; close the recorder if this plugin created it."""
        release(self._recorder, owned=self._owns_recorder)

    def register_hooks(self, registry: HookRegistry, **kwargs: object) -> None:
        """Register the callbacks; called when an agent, graph or swarm is created."""
        registry.add_callback(BeforeInvocationEvent, self.before_invocation)
        registry.add_callback(AfterInvocationEvent, self.after_invocation)
        registry.add_callback(MessageAddedEvent, self.message_added)
        registry.add_callback(BeforeToolCallEvent, self.before_tool_call)
        registry.add_callback(AfterToolCallEvent, self.after_tool_call)
        registry.add_callback(BeforeMultiAgentInvocationEvent, self.before_orchestration)
        registry.add_callback(AfterMultiAgentInvocationEvent, self.after_orchestration)

    def before_invocation(self, event: BeforeInvocationEvent) -> None:
        """Start a turn, or a part of the enclosing one."""
        guarded(self, self._started, event)

    def after_invocation(self, event: AfterInvocationEvent) -> None:
        """End the turn, if this invocation is one."""
        guarded(self, self._ended, event.agent, event.result)

    def message_added(self, event: MessageAddedEvent) -> None:
        """Record the model's message and usage."""
        guarded(self, self._message, event.agent, event.message)

    def before_tool_call(self, event: BeforeToolCallEvent) -> None:
        """Record a tool call."""
        guarded(self, self._called, event.agent, event.tool_use)

    def after_tool_call(self, event: AfterToolCallEvent) -> None:
        """Record how a tool call ended."""
        guarded(self, self._returned, event)

    def before_orchestration(self, event: BeforeMultiAgentInvocationEvent) -> None:
        """Start the turn of a graph or swarm."""
        guarded(self, self._orchestrated, event)

    def after_orchestration(self, event: AfterMultiAgentInvocationEvent) -> None:
        """End the turn of a graph or swarm."""
        guarded(self, self._ended, event.source)

    def _started(self, event: BeforeInvocationEvent) -> None:
        if event.messages is None:
            # `Agent.structured_output`, which reports only its start and end.
            return
        agent = event.agent
        level = self._level(agent, event.invocation_state, agent.name)
        if level.parent is None:
            level.run.context_message(agent.system_prompt)
        if level.owned:
            level.run.history(agent.messages, _history_message)
            self._record_user_message(level.run, event.messages)

    def _orchestrated(self, event: BeforeMultiAgentInvocationEvent) -> None:
        source = event.source
        level = self._level(source, event.invocation_state or {}, getattr(source, "id", None))
        level.outer_run = _ORCHESTRATED.get()
        _ORCHESTRATED.set(level.run if level.parent is None else None)

    def _level(self, source: object, passed: Mapping[str, object], name: str | None) -> _Level:
        tool, orchestrated = enclosing(self._recorder), _ORCHESTRATED.get()
        if tool is not None:
            level = _Level(tool[0], False, tool[1])
        elif orchestrated is not None and orchestrated.recorder is self._recorder:
            level = _Level(orchestrated, False)
        else:
            attributes = getattr(source, "trace_attributes", None) or {}
            manager = getattr(source, "_session_manager", None)
            session = first_of(passed, SESSION_KEYS) or first_of(attributes, SESSION_KEYS)
            run = ObservedRun(
                self._recorder,
                ORIGIN,
                session_id=session or getattr(manager, "session_id", None),
                user_id=first_of(passed, USER_KEYS) or first_of(attributes, USER_KEYS),
                agent_name=name,
                state=_state(source) or None,
                clock=self._clock,
            )
            level = _Level(run, True)
        level.outer_error = sys.exc_info()[1]
        self._levels[id(source)] = level
        while len(self._levels) > MAX_OPEN:
            del self._levels[next(iter(self._levels))]
        return level

    def _ended(self, source: object, result: "AgentResult | None" = None) -> None:
        if (level := self._levels.pop(id(source), None)) is None:
            return
        if not hasattr(source, "messages"):
            _ORCHESTRATED.set(level.outer_run)
        if not level.owned:
            return
        if state := _state(source):
            level.run.state(state)
        # The events carry no error, but fire while it propagates.
        error = sys.exc_info()[1]
        if error is not None and error is not level.outer_error:
            level.run.end_with(error)
            return
        if _has_failed(source):
            level.run.end("error", Failure(message="the graph or swarm failed"))
            return
        if result is not None and result.structured_output is not None:
            level.run.framework_result(text_of(result.structured_output))
        level.run.end()

    def _message(self, agent: "Agent", message: Message) -> None:
        if (level := self._levels.get(id(agent))) is None:
            return
        content = message.get("content", [])
        if message.get("role") != "assistant":
            if not level.run.has_user_message and level.parent is None:
                self._record_user_message(level.run, [message])
            return
        for block in content:
            if "toolUse" in block:
                call_id = block["toolUse"]["toolUseId"]
                level.keys[call_id] = level.run.call_key(call_id)
        usage = message.get("metadata", {}).get("usage", {})
        config = agent.model.get_config()
        used = tokens(*(usage.get(name) for name in _USAGE), total=usage.get("totalTokens"))
        level.run.model_called(
            first_of(config, ("model_id",)) if isinstance(config, Mapping) else None,
            tokens=used,
            agent=agent.name,
        )
        if level.parent is None:
            calls = any("toolUse" in block for block in content)
            level.run.agent_message(
                _text(content),
                agent.name,
                final=not calls,
                parts=_media(content),
                reasoning=_reasoning(content),
            )

    @staticmethod
    def _record_user_message(run: ObservedRun, messages: Sequence[Message] | None) -> None:
        """Record the last user message that is more than tool results."""
        for message in reversed(messages or ()):
            content = message.get("content", []) if message.get("role") == "user" else ()
            words, parts = _text(content), _media(content)
            if words is not None or parts:
                run.user_message(words, parts)
                return

    def _called(self, agent: "Agent", use: ToolUse) -> None:
        if (level := self._levels.get(id(agent))) is None:
            return
        call_id = use["toolUseId"]
        key = level.keys[call_id] = level.run.tool_called(
            call_id,
            use["name"],
            use["input"],
            agent=agent.name,
            parent=level.parent,
            key=level.keys.get(call_id),  # a hook may ask for a retry
        )
        level.calls[call_id] = enter((level.run, key))

    def _returned(self, event: AfterToolCallEvent) -> None:
        if (level := self._levels.get(id(event.agent))) is None:
            return
        call_id = event.tool_use["toolUseId"]
        enter(level.calls.pop(call_id, None))
        value = _result_value(event.result.get("content", []))
        failure = None
        if event.exception is not None:
            failure = failure_of(event.exception)
        elif event.result.get("status") == "error":
            failure = Failure(message=value if isinstance(value, str) else None)
        level.run.tool_returned(level.keys.get(call_id, call_id), value, failure)


def _text(content: Sequence[ContentBlock]) -> str | None:
    texts = [text for block in content if isinstance(text := block.get("text"), str)]
    return "".join(texts) if texts else None


def _has_failed(source: object) -> bool:
    """Return whether a graph or swarm ended as failed, which it may do without raising."""
    status = getattr(getattr(source, "state", None), "completion_status", None)
    return getattr(status, "value", None) == "failed"


def _state(source: object) -> JsonObject:
    """Return an agent's state; a graph or swarm has none."""
    # Its `get` copies all of it, however large.
    held = getattr(getattr(source, "state", None), "_data", None)
    return dict(first_items(held)) if isinstance(held, dict) else {}


def _history_message(message: Message) -> tuple[str, str | None]:
    """Return role and text of a message of the preceding conversation."""
    return message.get("role", ""), _text(message.get("content", []))


def _reasoning(content: Sequence[ContentBlock]) -> str | None:
    blocks = [block["reasoningContent"] for block in content if "reasoningContent" in block]
    texts = [block.get("reasoningText", {}).get("text") for block in blocks]
    return "\n".join(text for text in texts if text) or None


def _media(content: Sequence[ContentBlock]) -> list[MediaPart]:
    found = (media_in(block) for block in content if block.get("text") is None)
    return [part for part in found if part is not None]


def _result_value(content: Sequence[ToolResultContent]) -> object:
    """Return the content the model gets, unwrapped if it is a single text or object."""
    values = [block.get("text", block.get("json", block)) for block in content]
    return values[0] if len(values) == 1 else values
