"""One run, told to a recorder by a plugin: the bookkeeping that every framework's plugin needs.

Knows no framework.  What the agent said last is its answer once the run ends well; whatever it
said before is intermediate.  Times grow strictly within a run, whatever the clock does.  Tools may
run at the same time and in threads; the methods may be called from any of them, and none of them
protects its caller: that is the part of `guarded`.
"""

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, ParamSpec, Protocol, TypeVar

from opentelemetry import trace

from evaltap.recorder.failures import UNSEEN, failure_of
from evaltap.recorder.observation import (
    Failure,
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
from evaltap.recorder.recording import Recording
from evaltap.recorder.run_clock import RunClock


class ObservedRun:
    """A turn under way; make it when the run begins and call `end` once, with how it ended.

    `begun_ns` is when it began, if that was before it was known to be one.
    """

    def __init__(
        self,
        recorder: Recording,
        origin: Origin,
        *,
        session_id: str | None = None,
        app_name: str | None = None,
        user_id: str | None = None,
        agent_name: str | None = None,
        state: Mapping[str, Any] | None = None,
        invocation_id: str | None = None,
        begun_ns: int | None = None,
        clock: Callable[[], int] = time.time_ns,
    ) -> None:
        self.run_id = os.urandom(12).hex()
        self.session_id = session_id
        self.recorder = recorder
        self._clock = RunClock(clock)
        self._answer: tuple[int, str, str | None] | None = None
        self._open: dict[str, int] = {}
        self._lasted: dict[str, float] = {}
        self._asked = self._ended = False
        span = trace.get_current_span().get_span_context()
        self._observe(
            RunStarted(
                self.run_id,
                self._clock.now() if begun_ns is None else begun_ns,
                session_id=session_id,
                app_name=app_name,
                user_id=user_id,
                agent_name=agent_name,
                state=state,
                origin=origin,
                trace_id=format(span.trace_id, "032x") if span.is_valid else None,
                root_span_id=format(span.span_id, "016x") if span.is_valid else None,
                invocation_id=invocation_id,
            )
        )

    def asked(self, text: str | None) -> None:
        """Record the user message; a turn that ends without any says that it is missing."""
        if text is not None:
            self._asked = True
            self._observe(UserMessage(self.run_id, self._clock.now(), text))

    def waits_for(self, call_id: str) -> bool:
        """Return whether this tool call was made and has not returned."""
        return call_id in self._open

    @property
    def has_ended(self) -> bool:
        """Whether the turn is closed."""
        return self._ended

    def reopen(self) -> None:
        """Take up a turn that ended and goes on all the same; ending it again revises it."""
        self._ended = False

    @property
    def was_asked(self) -> bool:
        """Whether a user message was seen."""
        return self._asked

    def said(self, text: str | None, agent: str | None = None, *, final: bool = True) -> None:
        """Record words of the agent; they may be the answer unless more follow, or not `final`."""
        self._demote()
        if text is None:
            return
        if final:
            self._answer = self._clock.now(), text, agent
        else:
            self._observe(ModelCalled(self.run_id, self._clock.now(), text=text, agent_name=agent))

    def answered(self, text: str) -> None:
        """Record what the framework itself calls the result of the run."""
        if self._answer is None or self._answer[1] != text:
            self._demote()
            self._answer = self._clock.now(), text, None

    def model(
        self,
        model: str | None,
        *,
        input_tokens: int | None = None,
        output_tokens: int | None = None,
        cost_usd: float | None = None,
        agent: str | None = None,
    ) -> None:
        """Record a call of a language model and what it used; its words are for `said`."""
        self._observe(
            ModelCalled(
                self.run_id,
                self._clock.now(),
                model=model,
                input_tokens=input_tokens,
                output_tokens=output_tokens,
                cost_usd=cost_usd,
                agent_name=agent,
            )
        )

    def called(
        self,
        call_id: str | None,
        name: str,
        arguments: Any = UNSEEN,
        *,
        agent: str | None = None,
        parent: str | None = None,
        made_up: str = "",
        capture: Mapping[str, str] | None = None,
    ) -> None:
        """Record a tool call; `made_up` names it to `returned` when the model gave it no id."""
        capture = dict(capture or {})
        if call_id is None:
            capture["id"] = "missing"
        if arguments is UNSEEN:
            capture["arguments"] = "missing"
        now = self._clock.now()
        self._open[call_id or made_up] = now
        self._observe(
            ToolCalled(
                self.run_id,
                now,
                call_id or made_up,
                name,
                None if arguments is UNSEEN else arguments,
                agent_name=agent,
                parent_call_id=parent,
                id_known=call_id is not None,
                capture=capture,
            )
        )

    def returned(
        self,
        call_id: str,
        result: Any = UNSEEN,
        failure: Failure | None = None,
        *,
        duration_ms: float | None = None,
    ) -> None:
        """Record how a tool call ended; once more when more of it is known, which takes no time."""
        now = self._clock.now()
        begun = self._open.pop(call_id, None)
        if begun is not None:
            self._lasted[call_id] = (now - begun) / 1e6
        missing = {"result": "missing"} if result is UNSEEN and failure is None else {}
        self._observe(
            ToolReturned(
                self.run_id,
                now,
                call_id,
                None if result is UNSEEN else result,
                failure,
                self._lasted.get(call_id) if duration_ms is None else duration_ms,
                missing,
            )
        )

    def end(
        self, status: RunStatus = "ok", failure: Failure | None = None, reason: str = "run_ended"
    ) -> None:
        """Close the turn; what was said last is the answer unless the run failed."""
        if self._ended:
            return
        self._ended = True
        if not self._asked:
            self._observe(
                UserMessage(self.run_id, self._clock.now(), None, {"userContent": "missing"})
            )
        if status == "error":
            self._demote()
        elif self._answer is not None:
            said_ns, text, _ = self._answer
            self._observe(Responded(self.run_id, said_ns, text))
        elif status == "ok":
            missing = {"finalResponse": "missing"}
            self._observe(Responded(self.run_id, self._clock.now(), None, missing))
        self._observe(RunEnded(self.run_id, self._clock.now(), status, failure, reason))

    def end_with(self, error: BaseException) -> None:
        """Close the turn for an exception: failed, or incomplete when it was cancelled."""
        self.end("error" if isinstance(error, Exception) else "incomplete", failure_of(error))

    def _demote(self) -> None:
        if self._answer is not None:
            said_ns, text, agent = self._answer
            self._observe(ModelCalled(self.run_id, said_ns, text=text, agent_name=agent))
            self._answer = None

    def _observe(self, observation: Observation) -> None:
        self.recorder.observe(observation)


_ENCLOSING: ContextVar[tuple[ObservedRun, str] | None] = ContextVar("evaltap_call", default=None)


@contextmanager
def inside(run: ObservedRun | None, call_id: str) -> Iterator[None]:
    """Mark that a tool works here, so that a run which begins inside it belongs to `run`."""
    before = enter((run, call_id) if run is not None else None)
    try:
        yield
    finally:
        enter(before)


def enter(call: tuple[ObservedRun, str] | None) -> tuple[ObservedRun, str] | None:
    """Mark that this call is at work here; return what was marked, to be entered again later.

    For frameworks that tell the beginning and the end of a call in two hooks.
    """
    before = _ENCLOSING.get()
    _ENCLOSING.set(call)
    return before


def enclosing(recorder: Recording) -> tuple[ObservedRun, str] | None:
    """Return the run, and its open tool call, inside of which the caller works."""
    found = _ENCLOSING.get()
    if found is None or found[0].recorder is not recorder or not found[0].waits_for(found[1]):
        return None
    return found


class HasRecorder(Protocol):
    """A plugin: `guarded` reports its faults to the recorder it feeds."""

    _recorder: Recording


_P = ParamSpec("_P")
_T = TypeVar("_T")


def guarded(
    plugin: HasRecorder, step: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs
) -> _T | None:
    """Take a step of a plugin; its exceptions are counted and never reach the agent."""
    try:
        return step(*args, **kwargs)
    except Exception as error:
        # Frameworks pass on what their hooks raise, and the agent must not fail for the recorder.
        name = getattr(step, "__name__", type(step).__name__).lstrip("_")
        plugin._recorder.report_fault(f"{type(plugin).__name__}.{name}", error)
        return None


def recorder_for(log: str | None, recorder: Recording | None) -> Recording:
    """Return the recorder given, or a new one for the log."""
    if recorder is not None:
        return recorder
    from evaltap.recorder.recorder import Recorder

    return Recorder(log)
