"""The plain API: record a turn from your own loop.

    with recorder.turn(session_id="s-1", user="Where is my order?") as turn:
        turn.tool("get_order", {"id": "A-100"}, result={"status": "shipped"})
        turn.respond("It has shipped.")

Every method may be called from any thread, takes any object, and never raises.  An exception in
the block is recorded as the error of the turn and goes on to the caller unchanged.
"""

import itertools
import os
import time
from contextlib import suppress
from contextvars import Token
from types import TracebackType
from typing import TYPE_CHECKING, Any

from evaltap.recorder.errors import guard
from evaltap.recorder.failures import UNSEEN, failure_of
from evaltap.recorder.observation import (
    ModelCalled,
    Observation,
    Origin,
    Responded,
    RunEnded,
    RunStarted,
    RunStatus,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.run_clock import RunClock
from evaltap.recorder.tool_decorator import UNDER_WAY

if TYPE_CHECKING:
    from evaltap.recorder.recorder import Recorder

_ORIGIN = Origin(framework="plain", convention="evaltap")


class ToolCall:
    """A call of a tool that has begun; tell it how it ended."""

    __slots__ = ("_began_ns", "_turn", "id")

    def __init__(self, turn: "Turn", call_id: str, began_ns: int) -> None:
        self.id = call_id
        self._turn = turn
        self._began_ns = began_ns

    def returned(self, result: Any) -> None:
        """Record the result; the time since the call is its duration."""
        self._turn.tool_result(self, result)

    def failed(self, error: object) -> None:
        """Record the failure: an exception, or a text."""
        self._turn.tool_result(self, error=error)

    @property
    def milliseconds(self) -> float:
        """Time since the call began."""
        return (time.perf_counter_ns() - self._began_ns) / 1e6


class Turn:
    """One user message and what the agent did about it; obtain it from `Recorder.turn`."""

    def __init__(
        self,
        recorder: "Recorder",
        *,
        user: str | None,
        session_id: str | None,
        user_id: str | None,
        app_name: str | None,
        agent: str | None,
        invocation_id: str | None,
        state: dict[str, Any] | None,
    ) -> None:
        self.run_id = os.urandom(12).hex()
        self._recorder = recorder
        self._numbers = itertools.count(1)
        self._clock = RunClock()
        self._user = user
        self._responded = False
        self._ended = False
        self._before: Token[Any] | None = None
        self._start = RunStarted(
            self.run_id,
            self._clock.now(),
            session_id=session_id,
            app_name=app_name,
            user_id=user_id,
            agent_name=agent,
            state=state,
            origin=_ORIGIN,
            invocation_id=invocation_id,
        )

    def tool(
        self,
        name: str,
        arguments: Any = None,
        *,
        id: str | None = None,
        result: Any = UNSEEN,
        error: object = None,
        duration_ms: float | None = None,
        agent: str | None = None,
        parent: ToolCall | str | None = None,
    ) -> ToolCall:
        """Record that a tool was called and, when `result` or `error` is given, how it ended.

        `id` is the model's id of the call; `parent` the agent-as-tool call within which a sub-agent
        made this one.
        """
        made_up = f"{self.run_id}.{next(self._numbers)}"
        call = ToolCall(self, made_up if id is None else id, time.perf_counter_ns())
        with guard(self._recorder.faults, "turn.tool"):
            self._observe(
                ToolCalled(
                    self.run_id,
                    self._clock.now(),
                    call.id,
                    name,
                    arguments,
                    agent_name=agent,
                    parent_call_id=parent.id if isinstance(parent, ToolCall) else parent,
                    id_known=id is not None,
                    capture={"arguments": "missing"} if arguments is None else {},
                )
            )
            if result is not UNSEEN or error is not None:
                self._returned(call.id, result, error, duration_ms)
        return call

    def tool_result(
        self,
        call: ToolCall | str,
        result: Any = UNSEEN,
        *,
        error: object = None,
        duration_ms: float | None = None,
    ) -> None:
        """Record how a call ended, named by what `tool` returned or by the id given there."""
        with guard(self._recorder.faults, "turn.tool_result"):
            if isinstance(call, ToolCall):
                duration_ms = call.milliseconds if duration_ms is None else duration_ms
                call = call.id
            self._returned(call, result, error, duration_ms)

    def model(
        self,
        model: str | None = None,
        *,
        text: str | None = None,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: float | None = None,
        agent: str | None = None,
    ) -> None:
        """Record a call of a language model; `text` is what it said besides calling tools."""
        with guard(self._recorder.faults, "turn.model"):
            self._observe(
                ModelCalled(
                    self.run_id,
                    self._clock.now(),
                    model=model,
                    text=text,
                    input_tokens=input_tokens,
                    output_tokens=output_tokens,
                    cost_usd=cost_usd,
                    agent_name=agent,
                )
            )

    def respond(self, text: str | None) -> None:
        """Record the answer to the user; the last one counts."""
        with guard(self._recorder.faults, "turn.respond"):
            self._responded = True
            self._observe(Responded(self.run_id, self._clock.now(), text))

    def feedback(
        self,
        *,
        positive: bool | None = None,
        score: float | None = None,
        comment: str | None = None,
        correction: str | None = None,
        name: str = "feedback",
        given_by: str | None = None,
    ) -> str:
        """Record what the user thinks of this turn, during it or later; see `Recorder.feedback`."""
        start = self._start
        return self._recorder.feedback(
            start.session_id or self.run_id,
            turn=start.invocation_id or self.run_id,
            positive=positive,
            score=score,
            comment=comment,
            correction=correction,
            name=name,
            given_by=given_by,
            app_name=start.app_name,
        )

    def __enter__(self) -> "Turn":
        """Begin the turn."""
        self._before = UNDER_WAY.set(self)
        with guard(self._recorder.faults, "turn"):
            self._observe(self._start)
            missing = {"userContent": "missing"} if self._user is None else {}
            self._observe(UserMessage(self.run_id, self._clock.now(), self._user, missing))
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the turn: ok, error with the exception, or incomplete when it was interrupted."""
        if self._before is not None:
            # Ended in another context than it began in, there is nothing to undo.
            with suppress(ValueError, RuntimeError):
                UNDER_WAY.reset(self._before)
        with guard(self._recorder.faults, "turn"):
            if self._ended:
                return
            self._ended = True
            if not self._responded:
                missing = {"finalResponse": "missing"}
                self._observe(Responded(self.run_id, self._clock.now(), None, missing))
            status: RunStatus = "ok"
            if error is not None:
                status = "error" if isinstance(error, Exception) else "incomplete"
            failure = failure_of(error) if error is not None else None
            self._observe(RunEnded(self.run_id, self._clock.now(), status, failure))

    async def __aenter__(self) -> "Turn":
        """Begin the turn, in `async with`."""
        return self.__enter__()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """End the turn, in `async with`."""
        self.__exit__(kind, error, traceback)

    def _returned(
        self, call_id: str, result: Any, error: object, duration_ms: float | None
    ) -> None:
        failure = failure_of(error) if error is not None else None
        seen = None if result is UNSEEN else result
        missing = {"result": "missing"} if result is UNSEEN and failure is None else {}
        self._observe(
            ToolReturned(
                self.run_id, self._clock.now(), call_id, seen, failure, duration_ms, missing
            )
        )

    def _observe(self, observation: Observation) -> None:
        self._recorder.observe(observation)
