"""Framework-neutral events of a run: sources produce them, the assembler consumes them.

A source (a runner plugin, the span reader, the plain API, a file) converts its framework's events
to these records; it never builds eval cases itself. Each observation carries the `run_id`, unique
in the process, and a time in nanoseconds since the epoch. They may arrive in any order: the
assembler sorts by time, then by arrival.

`None` always means *not seen*; an empty string means the content was seen and is empty. `capture`
gives the reason why something was not seen, with the terms of `evaltap.schemas` (missing,
truncated, redacted, synthesized, ambiguous), keyed by case field.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from evaltap.recorder.foreign import error_name, error_text, type_name
from evaltap.recorder.media import MediaPart

MAX_CONTEXT = 8
"""Maximum context messages per run; an agent that changes its instructions on each call has more."""
MAX_HISTORY = 20
"""Maximum messages of the preceding conversation, the latest ones, if the models received them."""
RunStatus = Literal["ok", "error", "incomplete"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: the error's type (class name or code) and its message; either may be unknown."""

    type: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run was observed: becomes `EvalCase.source`."""

    service: str | None = None
    framework: str | None = None
    convention: str | None = None
    version: str | None = None
    """Of the agent: a release, a commit, a prompt number."""
    environment: str | None = None
    """Where it runs: production, staging."""


@dataclass(frozen=True, slots=True)
class RunLabels:
    """What a caller states of the runs that it starts, such as those of an experiment."""

    run: str | None = None
    """Name of the recording, when cases are recorded several times."""
    trial: int | None = None
    attempt: int | None = None
    eval_set_id: str | None = None
    eval_id: str | None = None
    app_name: str | None = None
    """The application of the case, in place of the one that the framework names; empty: none."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run of the agent started: one user message in, one answer out."""

    run_id: str
    time_ns: int
    session_id: str | None = None
    app_name: str | None = None
    user_id: str | None = None
    agent_name: str | None = None
    state: Mapping[str, object] | None = None
    origin: Origin = Origin()
    trace_id: str | None = None
    root_span_id: str | None = None
    invocation_id: str | None = None
    """The turn's id in the case; defaults to the run id."""
    capture: Mapping[str, str] = field(default_factory=dict)
    labels: RunLabels | None = None


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The user message that this run answers; the first one in a run wins."""

    run_id: str
    time_ns: int
    content: str | None
    capture: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[MediaPart, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """A message from outside this turn: instructions, a system message, the preceding conversation."""

    run_id: str
    time_ns: int
    content: str | None
    """None when it existed but was hidden, with the reason in `capture`."""
    capture: Mapping[str, str] = field(default_factory=dict)
    role: str = "system"
    """system, or user and assistant for the preceding conversation."""


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """One model call within the run: usage and text, not its tool calls."""

    run_id: str
    time_ns: int
    model: str | None = None
    text: str | None = None
    """Text of a call that is not the final answer: an intermediate response."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    span_id: str | None = None
    agent_name: str | None = None
    parts: tuple[MediaPart, ...] = ()
    """Media of the intermediate response."""
    reasoning: str | None = None
    """The model's reasoning before this text or its tool calls; recorded only if configured."""
    cache_read_tokens: int | None = None
    """The part of the input tokens read from the provider's cache."""
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The agent called a tool. `call_id` is the model's id for the call, if it has one."""

    run_id: str
    time_ns: int
    call_id: str
    name: str
    arguments: object = None
    """JSON value; `None` when not seen, with the reason in `capture`."""
    agent_name: str | None = None
    parent_call_id: str | None = None
    """The enclosing agent-as-tool call, when a sub-agent made this call."""
    id_known: bool = True
    """False when the source generated `call_id`; the case then leaves it out."""
    capture: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ToolReturned:
    """A tool call ended, with a result or a failure."""

    run_id: str
    time_ns: int
    call_id: str
    result: object = None
    failure: Failure | None = None
    duration_ms: float | None = None
    capture: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Responded:
    """The run's final answer to the user; the last one in a run wins."""

    run_id: str
    time_ns: int
    content: str | None
    capture: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[MediaPart, ...] = ()
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class StateSet:
    """The session's state after the turn; the last one in a run wins."""

    run_id: str
    time_ns: int
    state: Mapping[str, object]
    capture: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run ended. Without it the assembler closes a run after an idle timeout, as incomplete."""

    run_id: str
    time_ns: int
    status: RunStatus = "ok"
    failure: Failure | None = None
    close_reason: str = "run_ended"
    """run_ended | root_span_ended | next_message | idle_timeout | shutdown | evicted."""


RunEvent = (
    RunStarted
    | UserMessage
    | ContextMessage
    | ModelCalled
    | ToolCalled
    | ToolReturned
    | Responded
    | StateSet
    | RunEnded
)


@dataclass(frozen=True, slots=True)
class WholeRun:
    """A run's complete events, from a source that stores the run itself.

    It replaces everything observed of the run before; the turn gets a new revision if it differs.
    """

    run_id: str
    time_ns: int
    events: tuple[RunEvent, ...]


Observation = RunEvent | WholeRun


UNSEEN: object = object()
"""Sentinel for a result or arguments that were not seen."""


def failure_of(error: object) -> Failure:
    """Convert an error to a failure: a Failure is returned as is, a text becomes the message.

    An exception is named like OpenTelemetry's `exception.type`: module and class, or the class
    alone for a builtin.
    """
    if type(error) is Failure:
        return error
    if not issubclass(type(error), BaseException):
        named = type_name(error).strip("<>")
        return Failure(message=error if issubclass(type(error), str) else named)  # type: ignore[arg-type]
    return Failure(error_name(error), error_text(error))
