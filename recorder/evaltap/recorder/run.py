"""One run as observations: the bookkeeping shared by the turn API and all framework plugins.

It knows no framework. The agent's last message becomes the answer when the run ends without an
error; earlier ones are intermediate. Timestamps strictly increase within a run, whatever the wall
clock does. Tools may run concurrently and in threads, so any thread may call these methods. They do
not guard the caller against exceptions; `guarded` does.
"""

import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from itertools import count, islice
from typing import NamedTuple, TypeVar

from evaltap.recorder.observation import (
    MAX_CONTEXT,
    MAX_HISTORY,
    UNSEEN,
    ContextMessage,
    Failure,
    ModelCalled,
    Observation,
    Origin,
    Responded,
    RunEnded,
    RunLabels,
    RunStarted,
    RunStatus,
    StateSet,
    ToolCalled,
    ToolReturned,
    UserMessage,
    failure_of,
)
from evaltap.recorder.protocols import Observing
from evaltap.recorder.tokens import UNKNOWN, Tokens
from evaltap.schemas.chat.media import MediaPart

T = TypeVar("T")
LABELS: ContextVar[RunLabels | None] = ContextVar("evaltap_run_labels", default=None)
"""The labels of runs that start in this context (`Recorder.run_labels`)."""
_MAX_LOOKED_AT = 10 * MAX_HISTORY
"""Messages of the preceding conversation that are looked at: most may be calls and results."""
_MAX_HISTORY_CHARACTERS = 200_000
"""No more messages are read once their texts are longer than this: the agent waits meanwhile."""


class _AgentMessage(NamedTuple):
    """The agent's last message: the answer, unless another one follows."""

    time_ns: int
    text: str
    agent: str | None = None
    parts: tuple[MediaPart, ...] = ()
    reasoning: str | None = None


class ObservedRun:
    """A turn in progress; create it when the run starts and call `end` once, with the outcome.

    `begun_ns` is the start time if the run started before it was recognized as one. With
    `begin_now=False` nothing is observed until `begin` is called.
    """

    def __init__(
        self,
        recorder: Observing,
        origin: Origin,
        *,
        session_id: str | None = None,
        app_name: str | None = None,
        user_id: str | None = None,
        agent_name: str | None = None,
        state: Mapping[str, object] | None = None,
        invocation_id: str | None = None,
        begun_ns: int | None = None,
        begin_now: bool = True,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.run_id = os.urandom(12).hex()
        self.session_id = session_id
        self.recorder = recorder
        self._clock = RunClock(clock)
        self._answer: _AgentMessage | None = None
        self._context: list[str] = []
        self._context_is_cut = False
        self.has_history = False
        """Whether the preceding conversation was recorded."""
        self._open: dict[str, int] = {}
        self._same_id: dict[str, Iterator[int]] = {}
        """By id, the numbers of the calls that have it: counters, as threads of a framework share a run."""
        self._durations: dict[str, float] = {}
        self._unanswered: set[str] = set()
        """Calls without result or failure."""
        self._given = 0
        self.awaits: set[str] = set()
        """Calls whose result is not the last (see `RunEnded`)."""
        self.resumed = False
        """Whether it began with calls that it had not requested (see `RunEnded`)."""
        self._has_user_message = self._responded = self._ended = False
        trace_id, root_span_id = _current_span()
        self._start = RunStarted(
            self.run_id,
            self._clock.now() if begun_ns is None else begun_ns,
            session_id=session_id,
            app_name=app_name,
            user_id=user_id,
            agent_name=agent_name,
            state=state,
            origin=origin,
            trace_id=trace_id,
            root_span_id=root_span_id,
            invocation_id=invocation_id,
            labels=LABELS.get(),
        )
        if begin_now:
            self.begin()

    def begin(self) -> None:
        """Record the start of the run."""
        self._observe(self._start)

    def user_message(self, text: str | None, parts: Sequence[MediaPart] = ()) -> None:
        """Record the user message; a turn that ends without one marks it as missing."""
        if text is None and parts:
            text = ""
        if text is not None:
            self._has_user_message = True
            now = self._clock.now()
            self._observe(UserMessage(self.run_id, now, text, parts=tuple(parts)))

    def context_message(self, text: object) -> None:
        """Record a system message or instruction, each text once per run."""
        if type(text) is not str or not text or text in self._context:
            return
        full = len(self._context) >= MAX_CONTEXT
        if not full:
            self._context.append(text)
        elif self._context_is_cut:
            return
        self._context_is_cut = full
        self._observe(
            ContextMessage(
                self.run_id,
                self._clock.now(),
                None if full else text,
                {"contextMessages": "truncated"} if full else {},
            )
        )

    def history(self, messages: Sequence[T], read: Callable[[T], tuple[str, object]]) -> None:
        """Record the conversation before this turn, as the first model call received it.

        `read` returns role and text of a message; messages without a text, and of other roles than
        user and assistant, are left out.
        """
        if self.has_history:
            return
        self.has_history = True
        said: list[tuple[str, str]] = []
        room = _MAX_HISTORY_CHARACTERS
        unread = iter(reversed(messages))
        for message in islice(unread, _MAX_LOOKED_AT):
            role, text = read(message)
            if role in ("user", "assistant") and type(text) is str and text:
                said.append((role, text))
                room -= len(text)
            if len(said) > MAX_HISTORY or room < 0:
                break
        cut = len(said) > MAX_HISTORY or next(unread, None) is not None
        capture = {"contextMessages": "truncated"} if cut else {}
        for role, text in reversed(said[:MAX_HISTORY]):
            self._observe(ContextMessage(self.run_id, self._clock.now(), text, capture, role))

    def is_open(self, key: str) -> bool:
        """Return whether this tool call has started and not yet returned."""
        return key in self._open

    @property
    def has_ended(self) -> bool:
        """Whether the turn has ended."""
        return self._ended

    def reopen(self) -> None:
        """Continue a turn that has ended; ending it again revises it."""
        self._ended = False

    @property
    def has_user_message(self) -> bool:
        """Whether a user message was recorded."""
        return self._has_user_message

    @property
    def has_answer(self) -> bool:
        """Whether the agent's last message may be the answer."""
        return self._answer is not None

    def agent_message(
        self,
        text: str | None,
        agent: str | None = None,
        *,
        final: bool = True,
        parts: Sequence[MediaPart] = (),
        reasoning: str | None = None,
    ) -> None:
        """Record an agent message: the answer, unless another follows or it is not `final`.

        `reasoning` is the reasoning that preceded it; reasoning alone is not a message.
        """
        self._demote()
        if text is None and not parts:
            if reasoning:
                now = self._clock.now()
                self._observe(ModelCalled(self.run_id, now, agent_name=agent, reasoning=reasoning))
            return
        self._answer = _AgentMessage(self._clock.now(), text or "", agent, tuple(parts), reasoning)
        if not final:
            self._demote()

    @property
    def is_waiting(self) -> bool:
        """Whether a call has no result, and no message may be the answer; or the last result is to come."""
        return bool(self.awaits) or (bool(self._unanswered) and not self.has_answer)

    def mark_intermediate(self) -> None:
        """Mark the agent's last message as intermediate, because the agent continues."""
        self._demote()

    def framework_result(self, text: str) -> None:
        """Record what the framework itself reports as the run's result."""
        if self._answer is None or self._answer.text != text:
            self._demote()
            self._answer = _AgentMessage(self._clock.now(), text)

    def answer(
        self, text: str | None, parts: Sequence[MediaPart] = (), reasoning: str | None = None
    ) -> None:
        """Record a message known to be the answer; the last one wins."""
        self._responded = True
        content = "" if text is None and parts else text
        now = self._clock.now()
        self._observe(Responded(self.run_id, now, content, parts=tuple(parts), reasoning=reasoning))

    def model_called(
        self,
        model: str | None,
        *,
        text: str | None = None,
        tokens: Tokens = UNKNOWN,
        cost_usd: float | None = None,
        agent: str | None = None,
        reasoning: str | None = None,
    ) -> None:
        """Record a model call and its usage; input tokens include cached ones.

        Pass its text to `agent_message`, or as `text` when it is known not to be the answer.
        """
        self._observe(
            ModelCalled(
                self.run_id,
                self._clock.now(),
                model=model,
                text=text,
                tokens=tokens,
                cost_usd=cost_usd,
                agent_name=agent,
                reasoning=reasoning,
            )
        )

    def tool_called(
        self,
        call_id: str | None,
        name: str,
        arguments: object = UNSEEN,
        *,
        agent: str | None = None,
        parent: str | None = None,
        generated_id: str = "",
        capture: Mapping[str, str] | None = None,
        expects_id: bool = True,
        is_open: bool = True,
        is_given: bool = False,
        key: str | None = None,
    ) -> str:
        """Record a tool call and return its key for `tool_returned`.

        The key is its id, or `generated_id` when the model gave it none; a call with the id of an
        earlier call gets a number. Pass the `key` of a call to record the same call again, as when it
        starts or is retried. With `expects_id`, a missing id is marked as missing. A call with
        `is_open=False` has already returned, so its duration is unknown; one that `is_given` was made
        before the run, which goes on after a pause.
        """
        key = key or self.call_key(call_id or generated_id)
        capture = dict(capture or {})
        if call_id is None and expects_id:
            capture["id"] = "missing"
        if arguments is UNSEEN:
            capture["arguments"] = "missing"
        if is_given:
            self.resumed = True
            self._given += 1
        now = self._start.time_ns + self._given if is_given else self._clock.now()
        if is_open and not is_given:
            self._open[key] = now
        self._unanswered.add(key)
        self._observe(
            ToolCalled(
                self.run_id,
                now,
                key,
                name,
                None if arguments is UNSEEN else arguments,
                agent_name=agent,
                parent_call_id=parent,
                id_known=call_id is not None,
                capture=capture,
            )
        )
        return key

    def call_key(self, call_id: str) -> str:
        """Return the key of a new call, which no other has: some servers number the calls of each response
        from 0.
        """
        number = next(self._same_id.setdefault(call_id, count(1)))
        return call_id if number == 1 else f"{call_id}#{number}"

    def tool_returned(
        self,
        key: str,
        result: object = UNSEEN,
        failure: Failure | None = None,
        *,
        duration_ms: float | None = None,
        state: object = None,
    ) -> None:
        """Record how a tool call ended, and what it wrote to the session's state (UNSEEN: something that is
        not known); repeat it to add details, which does not change the duration.
        """
        now = self._clock.now()
        if (begun := self._open.pop(key, None)) is not None:
            self._durations[key] = (now - begun) / 1e6
        missing = {"result": "missing"} if result is UNSEEN and failure is None else {}
        if state is UNSEEN:
            missing["stateDelta"] = "missing"
        if (result is not UNSEEN and result is not None) or failure is not None:
            self._unanswered.discard(key)
        self._observe(
            ToolReturned(
                self.run_id,
                now,
                key,
                None if result is UNSEEN else result,
                failure,
                self._durations.get(key) if duration_ms is None else duration_ms,
                missing,
                None if state is UNSEEN else state,
            )
        )

    def state(self, state: Mapping[str, object]) -> None:
        """Record the session's state after the turn; the last one wins."""
        self._observe(StateSet(self.run_id, self._clock.now(), state))

    def end(
        self, status: RunStatus = "ok", failure: Failure | None = None, reason: str = "run_ended"
    ) -> None:
        """End the turn; the last message is the answer unless the run failed."""
        if self._ended:
            return
        self._ended = True
        if not self._has_user_message:
            self._observe(
                UserMessage(self.run_id, self._clock.now(), None, {"userContent": "missing"})
            )
        if status == "error":
            self._demote()
        elif self._answer is not None:
            message = self._answer
            self._observe(
                Responded(
                    self.run_id,
                    message.time_ns,
                    message.text,
                    parts=message.parts,
                    reasoning=message.reasoning,
                )
            )
        elif status == "ok" and not self._responded:
            missing = {"finalResponse": "missing"}
            self._observe(Responded(self.run_id, self._clock.now(), None, missing))
        self._observe(
            RunEnded(
                self.run_id,
                self._clock.now(),
                status,
                failure,
                reason,
                resumed=self.resumed,
                awaits=tuple(sorted(self.awaits)),
            )
        )

    def end_with(self, error: BaseException) -> None:
        """End the turn with an exception: failed, or incomplete when it was cancelled."""
        self.end("error" if isinstance(error, Exception) else "incomplete", failure_of(error))

    def _demote(self) -> None:
        message, self._answer = self._answer, None
        if message is not None:
            self._observe(
                ModelCalled(
                    self.run_id,
                    message.time_ns,
                    text=message.text,
                    agent_name=message.agent,
                    parts=message.parts,
                    reasoning=message.reasoning,
                )
            )

    def _observe(self, observation: Observation) -> None:
        self.recorder.observe(observation)


def _current_span() -> tuple[str | None, str | None]:
    """Return trace id and span id of the current span, None without one."""
    # Do not import OpenTelemetry: if it is not loaded, there is no span.
    trace = sys.modules.get("opentelemetry.trace")
    span = trace.get_current_span().get_span_context() if trace is not None else None
    if span is None or not span.is_valid:
        return None, None
    return format(span.trace_id, "032x"), format(span.span_id, "016x")


class RunClock:
    """Nanoseconds since the epoch, strictly increasing within a run.

    It reads `wall` once, at the start, and a monotonic clock from then on, so that setting the
    host's clock back does not reorder observations.
    """

    __slots__ = ("_began_ns", "_last_ns", "_zero_ns")

    def __init__(self, wall: Callable[[], int] = time.time_ns) -> None:
        self._zero_ns, self._began_ns = time.perf_counter_ns(), wall()
        self._last_ns = 0

    def now(self) -> int:
        """Return the time, at least one nanosecond after the last value returned."""
        now = self._began_ns + time.perf_counter_ns() - self._zero_ns
        self._last_ns = max(now, self._last_ns + 1)
        return self._last_ns
