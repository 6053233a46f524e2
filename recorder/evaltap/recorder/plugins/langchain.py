"""LangChain and LangGraph: a callback handler that records every run.

    agent.invoke({...}, config={"callbacks": [handler], "configurable": {"thread_id": "s-1"}})

Source: `langchain_core.callbacks.BaseCallbackHandler` in langchain-core 1.7. A run is a call
without a parent in which a model or a tool is called. Sub-graphs, chains and agents below it are
part of the turn; whatever happens inside a tool is the work of a sub-agent.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from langchain_core.callbacks import BaseCallbackHandler
from langchain_core.messages import (
    AIMessage,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolCall,
    ToolMessage,
)

from evaltap.recorder.enclosing import enclosing
from evaltap.recorder.foreign import attribute
from evaltap.recorder.observation import PAUSED, UNSEEN, Failure, Origin, failure_of
from evaltap.recorder.plugins.langchain_values import (
    before_the_user,
    history_message,
    is_failure,
    is_interrupt,
    is_streamed,
    media_of,
    reasoning_of,
    result_of,
    state_of,
    state_written,
    tool_message_value,
    tool_output_value,
    user_message_in,
)
from evaltap.recorder.plugins.support import first_of, guarded, recorder_for, release
from evaltap.recorder.protocols import Observing
from evaltap.recorder.run import ObservedRun
from evaltap.recorder.tokens import Tokens
from evaltap.schemas.data import JsonObject

if TYPE_CHECKING:
    from langchain_core.outputs import LLMResult


@dataclass(slots=True)
class Turn:
    """A root call; it becomes a run with its first model or tool call."""

    begun_ns: int
    metadata: JsonObject
    inputs: object
    name: str | None
    run: ObservedRun | None = None
    starting: threading.Lock = field(default_factory=threading.Lock)
    is_interrupted: bool = False
    """Whether a step waits for a person."""


@dataclass(slots=True)
class Level:
    """The work of a turn, or of a sub-agent inside one of its tools (`parent`)."""

    turn: Turn
    parent: str | None = None
    requested: dict[str, tuple[ToolCall, str | None]] = field(default_factory=dict)
    """Calls requested by a model that no tool has started, with its agent, by key: agents that run at once
    may use the same ids."""
    keys: dict[str, str] = field(default_factory=dict)
    """By id, the key of the call that the model requested last."""
    failed: dict[str, tuple[str, Failure]] = field(default_factory=dict)
    """By id, the keys of failed calls whose error may still be sent to the model."""


@dataclass(slots=True)
class Node:
    """An open LangChain call."""

    level: Level
    top: bool = False
    """Whether the turn starts and ends with this call."""
    call_id: str | None = None
    key: str = ""
    """The call's key in the run."""
    inner: Level | None = None
    """The work of a sub-agent inside this tool."""
    model: str | None = None
    agent: str | None = None


ORIGIN = Origin(framework="langchain", convention="langchain-callbacks")
SESSION_KEYS = ("session_id", "conversation_id", "thread_id")
"""Metadata keys for the session id, most specific first; LangGraph sets `thread_id`."""
MAX_OPEN = 100_000
"""Maximum tracked open calls; beyond it the oldest is evicted."""


class EvaltapHandler(BaseCallbackHandler):
    """Record every run as one turn of an eval case; the thread, session or conversation is the case.

    `log` is the recorder's log; pass `recorder` instead to share one. One handler may serve any
    number of chains and graphs. `clock` returns nanoseconds since the epoch.
    """

    run_inline = True
    """Receive events in order, also in async runs; the handler never blocks."""

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
        self._nodes: OrderedDict[UUID, Node] = OrderedDict()

    def close(self) -> None:
        """Write everything in memory; close the recorder if this plugin created it."""
        release(self._recorder, owned=self._owns_recorder)

    def on_chain_start(
        self,
        serialized: JsonObject,
        inputs: object,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: JsonObject | None = None,
        name: str | None = None,
        **kwargs: object,
    ) -> None:
        """Track a chain or graph; one without a parent may become a turn."""
        guarded(self, self._enter, run_id, parent_run_id, metadata, inputs, name)

    def on_chain_end(
        self, outputs: object, *, run_id: UUID, inputs: object = None, **kwargs: object
    ) -> None:
        """End the turn with its result, if this chain is one."""
        guarded(self, self._input_told, run_id, inputs)
        guarded(self, self._finished, run_id, outputs)

    def on_chain_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """End the turn as failed, if this chain is one."""
        guarded(self, self._failed, run_id, error)

    def on_chat_model_start(
        self,
        serialized: JsonObject,
        messages: list[list[BaseMessage]],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: JsonObject | None = None,
        **kwargs: object,
    ) -> None:
        """Record a chat model's input."""
        model_input = messages[0] if messages else []
        guarded(self, self._model_called, run_id, parent_run_id, metadata, model_input)

    def on_llm_start(
        self,
        serialized: JsonObject,
        prompts: list[str],
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: JsonObject | None = None,
        **kwargs: object,
    ) -> None:
        """Record a text model's input."""
        guarded(self, self._model_called, run_id, parent_run_id, metadata, prompts[:1])

    def on_llm_end(self, response: "LLMResult", *, run_id: UUID, **kwargs: object) -> None:
        """Record a model's message and usage."""
        guarded(self, self._model_answered, run_id, response)

    def on_llm_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """End the turn as failed if it consists of this model call alone."""
        guarded(self, self._failed, run_id, error)

    def on_tool_start(
        self,
        serialized: JsonObject,
        input_str: str,
        *,
        run_id: UUID,
        parent_run_id: UUID | None = None,
        metadata: JsonObject | None = None,
        inputs: JsonObject | None = None,
        name: str | None = None,
        tool_call_id: str | None = None,
        **kwargs: object,
    ) -> None:
        """Record a tool call."""
        tool = name or (serialized or {}).get("name") or ""
        given = input_str if inputs is None else inputs
        guarded(self, self._tool_called, run_id, parent_run_id, metadata, tool, given, tool_call_id)

    def on_tool_end(self, output: object, *, run_id: UUID, **kwargs: object) -> None:
        """Record a tool's result."""
        guarded(self, self._tool_returned, run_id, output)

    def on_tool_error(self, error: BaseException, *, run_id: UUID, **kwargs: object) -> None:
        """Record a tool's exception."""
        guarded(self, self._tool_failed, run_id, error)

    def _enter(
        self,
        run_id: UUID,
        parent_id: UUID | None,
        metadata: JsonObject | None,
        inputs: object,
        name: str | None,
    ) -> Node:
        """Return the node for a new call, below its parent or as a root of its own."""
        above = self._nodes.get(parent_id) if parent_id is not None else None
        agent = (metadata or {}).get("lc_agent_name")
        if above is None:
            turn = Turn(self._clock(), metadata or {}, inputs, agent or name)
            node = Node(Level(turn), True, agent=agent)
        elif above.call_id is not None:
            above.inner = above.inner or Level(above.level.turn, above.key)
            node = Node(above.inner, agent=agent)
        else:
            node = Node(above.level, agent=agent or above.agent)
        self._nodes[run_id] = node
        self._input_told(run_id, inputs)
        while len(self._nodes) > MAX_OPEN:
            self._nodes.popitem(last=False)
        return node

    def _input_told(self, run_id: UUID, inputs: object) -> None:
        """Take the input of a streamed chain from the first step that tells it."""
        node = self._nodes.get(run_id) if inputs is not None else None
        turn = node.level.turn if node is not None else None
        if turn is not None and turn.run is None and is_streamed(turn.inputs):
            turn.inputs = inputs

    def _run(self, level: Level) -> ObservedRun:
        """Return the level's run, starting it if necessary: once, whichever parallel branch is first."""
        turn = level.turn
        if turn.run is None:
            with turn.starting:
                turn.run = turn.run or self._started(level)
        return turn.run

    def _started(self, level: Level) -> ObservedRun:
        turn, outer = level.turn, enclosing(self._recorder)
        if outer is not None:
            run, level.parent = outer
            return run
        run = ObservedRun(
            self._recorder,
            ORIGIN,
            session_id=first_of(turn.metadata, SESSION_KEYS),
            user_id=first_of(turn.metadata, ("user_id",)),
            agent_name=turn.name,
            begun_ns=turn.begun_ns,
            clock=self._clock,
        )
        run.resumed = attribute(turn.inputs, "resume") is not None
        self._record_user_message(run, turn.inputs)
        return run

    @staticmethod
    def _record_user_message(run: ObservedRun, given: object) -> None:
        if (question := user_message_in(given)) is not None:
            run.user_message(question.value, question.media)

    def _finished(self, run_id: UUID, outputs: object) -> None:
        node = self._nodes.pop(run_id, None)
        run = node.level.turn.run if node is not None and node.top else None
        if node is None or run is None:
            return
        messages = outputs.get("messages") if isinstance(outputs, Mapping) else None
        self._catch_up(node.level, messages if isinstance(messages, list) else ())
        self._not_run(node.level)
        if node.level.parent is None:
            if (result := result_of(outputs)) is not None:
                run.framework_result(result)
            if state := state_of(outputs):
                run.state(state)
            has_paused = run.is_waiting or node.level.turn.is_interrupted
            run.end(reason=PAUSED if has_paused else "run_ended")

    def _failed(self, run_id: UUID, error: BaseException) -> None:
        node = self._nodes.pop(run_id, None)
        if node is not None and is_interrupt(error):
            node.level.turn.is_interrupted = True
        if node is None or not node.top or node.level.turn.run is None:
            return
        self._not_run(node.level)
        if node.level.parent is None:
            node.level.turn.run.end_with(error)

    def _model_called(
        self,
        run_id: UUID,
        parent_id: UUID | None,
        metadata: JsonObject | None,
        model_input: Sequence[BaseMessage | str],
    ) -> None:
        node = self._enter(run_id, parent_id, metadata, model_input, None)
        node.model = first_of(metadata or {}, ("ls_model_name",))
        run = self._run(node.level)
        for message in model_input if node.level.parent is None else ():
            if not isinstance(message, SystemMessage):
                break
            run.context_message(str(message.text))
        if node.level.parent is None:
            if not run.has_history:
                self._record_given(node.level, model_input)
            run.history(before_the_user(model_input), history_message)
            if not run.has_user_message:
                self._record_user_message(run, model_input)
        self._catch_up(node.level, model_input)

    def _record_given(self, level: Level, messages: Sequence[BaseMessage | str]) -> None:
        """Record the calls since the user's message that a run begins with, as it goes on after a pause."""
        run, since = self._run(level), messages[len(before_the_user(messages)) :]
        if not since or not isinstance(since[0], HumanMessage):
            return
        results = {one.tool_call_id: one for one in since if isinstance(one, ToolMessage)}
        calls = [call for one in since if isinstance(one, AIMessage) for call in one.tool_calls]
        for call in calls:
            call_id = call["id"]
            if call_id is None or call_id in level.keys:
                continue
            key = level.keys[call_id] = run.call_key(call_id)
            self._called_only(level, key, call, is_given=True)
            if call_id in results:
                run.tool_returned(key, *tool_message_value(results[call_id]))

    def _model_answered(self, run_id: UUID, response: "LLMResult") -> None:
        node = self._nodes.get(run_id)
        if node is None or not response.generations:
            return
        first = response.generations[0][0]
        level, run = node.level, self._run(node.level)
        message = getattr(first, "message", None)
        said = message if isinstance(message, AIMessage) else None
        calls = said.tool_calls if said else []
        usage = said.usage_metadata if said else None
        cached = usage.get("input_token_details", {}) if usage else {}
        run.model_called(
            first_of(said.response_metadata if said else {}, ("model_name", "model")) or node.model,
            tokens=Tokens(
                usage and usage["input_tokens"],
                usage and usage["output_tokens"],
                cached.get("cache_read"),
                cached.get("cache_creation"),
            ),
            agent=node.agent,
        )
        if level.parent is None:
            words = str(said.text) if said else first.text
            parts = media_of(message) if message is not None else ()
            thoughts = reasoning_of(message) if message is not None else None
            run.agent_message(
                words or None, node.agent, final=not calls, parts=parts, reasoning=thoughts
            )
        for call in calls:
            if call["id"] is not None:
                key = level.keys[call["id"]] = run.call_key(call["id"])
                level.requested[key] = call, node.agent
        self._finished(run_id, message if message is not None else first.text)

    def _tool_called(
        self,
        run_id: UUID,
        parent_id: UUID | None,
        metadata: JsonObject | None,
        name: str,
        given: object,
        call_id: str | None,
    ) -> None:
        if parent_id is None and enclosing(self._recorder) is None:
            # A program that calls a tool directly is not an agent.
            return
        node = self._enter(run_id, parent_id, metadata, None, None)
        level = node.level
        key = _requested_key(level, call_id, name, given)
        requested, _ = level.requested.get(key, (None, None)) if key is not None else (None, None)
        node.call_id = node.key = call_id or str(run_id)
        if requested is not None:
            self._call_earlier(level, requested)
        elif call_id is not None and call_id not in level.keys and level.parent is None:
            self._run(level).resumed = True
        node.key = level.keys[node.call_id] = self._run(level).tool_called(
            call_id,
            name,
            # The inputs also hold what the framework injects, such as the graph's state.
            requested["args"] if requested is not None else given,
            agent=node.agent,
            parent=level.parent,
            generated_id=node.call_id,
            key=key or level.keys.get(node.call_id),
        )
        # Not before: another thread must find this call either requested or recorded.
        level.requested.pop(node.key, None)

    def _tool_returned(self, run_id: UUID, output: object) -> None:
        node = self._tool_ended(run_id)
        if node is None or node.call_id is None:
            return
        value, failed = tool_output_value(output, node.call_id)
        failure = Failure(message=value if isinstance(value, str) else None) if failed else None
        node.level.failed.pop(node.call_id, None)  # this was a retry
        self._run(node.level).tool_returned(node.key, value, failure, state=state_written(output))

    def _tool_ended(self, run_id: UUID) -> Node | None:
        node = self._nodes.pop(run_id, None)
        if node is not None and node.inner is not None:
            self._not_run(node.inner)
        return node

    def _tool_failed(self, run_id: UUID, error: BaseException) -> None:
        node = self._tool_ended(run_id)
        if node is None or node.call_id is None or not is_failure(error):
            return
        failure = failure_of(error)
        node.level.failed[node.call_id] = node.key, failure
        self._run(node.level).tool_returned(node.key, UNSEEN, failure)

    def _catch_up(self, level: Level, messages: Sequence[BaseMessage | str]) -> None:
        """Record results, found in a model's input, of calls that raised or that no tool started."""
        if not (level.requested or level.failed):
            return
        # The last one: an earlier call may have the same id.
        results = {one.tool_call_id: one for one in messages if isinstance(one, ToolMessage)}
        for call_id, message in results.items():
            asked = [key for key, (call, _) in [*level.requested.items()] if call["id"] == call_id]
            if asked:
                self._called_only(level, asked[-1], *level.requested.pop(asked[-1]))
                self._run(level).tool_returned(asked[-1], *tool_message_value(message))
            elif call_id in level.failed:
                key, failure = level.failed.pop(call_id)
                self._run(level).tool_returned(key, message.content, failure)

    def _not_run(self, level: Level) -> None:
        """Record the calls that were requested and never made."""
        for key, requested in level.requested.items():
            self._called_only(level, key, *requested)
        level.requested.clear()

    def _call_earlier(self, level: Level, started: ToolCall) -> None:
        """Record the calls that the model made before one whose tool has started.

        Threads start parallel tools in any order.
        """
        for key, (call, agent) in [*level.requested.items()]:
            if call is started:
                return
            self._called_only(level, key, call, agent)

    def _called_only(
        self,
        level: Level,
        key: str,
        call: ToolCall,
        agent: str | None = None,
        *,
        is_given: bool = False,
    ) -> None:
        self._run(level).tool_called(
            call["id"],
            call["name"],
            call["args"],
            agent=agent or level.turn.metadata.get("lc_agent_name"),
            parent=level.parent,
            is_open=False,
            is_given=is_given,
            key=key,
        )


def _requested_key(level: Level, call_id: str | None, name: str, given: object) -> str | None:
    """Return the key of the call that a tool starts: of several with its id, that with its arguments."""
    if call_id is None:
        return None
    asked = [(key, call) for key, (call, _) in [*level.requested.items()] if call["id"] == call_id]
    inputs = given if isinstance(given, Mapping) else {}
    fitting = (
        key
        for key, call in asked
        if call["name"] == name and inputs.items() >= call["args"].items()
    )
    return next(fitting, asked[0][0] if asked else None)
