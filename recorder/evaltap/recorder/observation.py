"""The events of a run, in terms of no framework: what sources produce and the assembler consumes.

A source (a runner plugin, the span reader, the plain API, a file) turns what its framework
shows into these records; it never builds eval cases itself.  Each observation names its run by
`run_id`, unique in the process, and carries its time in nanoseconds since the epoch.  Order of
arrival is free: the assembler sorts by time, then by arrival.

`None` always means *not seen*; an empty string is content that was seen and is empty.  Why
something was not seen stands in `capture`, with the words of `evaltap.schemas` (missing,
truncated, redacted, synthesized, ambiguous), keyed by the case field it concerns.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from evaltap.recorder.foreign import error_name, error_text, type_name
from evaltap.recorder.media import MediaPart

MAX_CONTEXT = 8
"""Context messages of one run; an agent that is told something else in each call has more."""
MAX_HISTORY = 20
"""Messages of the conversation before a turn, the latest, where its models were given them."""
RunStatus = Literal["ok", "error", "incomplete"]


@dataclass(frozen=True, slots=True)
class Failure:
    """What went wrong: the error's type (class name or code) and its message, either may be unknown."""

    type: str | None = None
    message: str | None = None


@dataclass(frozen=True, slots=True)
class Origin:
    """Where a run was seen: becomes `EvalCase.source`."""

    service: str | None = None
    framework: str | None = None
    convention: str | None = None
    version: str | None = None
    """Of the agent: a release, a commit, a prompt's number."""
    environment: str | None = None
    """Where it runs: production, staging."""


@dataclass(frozen=True, slots=True)
class RunStarted:
    """A run of the agent began: one user message in, one answer out."""

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
    """The turn's id in the case; the run id when absent."""
    capture: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class UserMessage:
    """The user message that this run answers; the first one of a run counts."""

    run_id: str
    time_ns: int
    content: str | None
    capture: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[MediaPart, ...] = ()


@dataclass(frozen=True, slots=True)
class ContextMessage:
    """What the model was told besides this turn: instructions, a system message, the conversation before."""

    run_id: str
    time_ns: int
    content: str | None
    """None when it was there and not shown, with the reason in `capture`."""
    capture: Mapping[str, str] = field(default_factory=dict)
    role: str = "system"
    """system, or user and assistant for the conversation before this turn."""


@dataclass(frozen=True, slots=True)
class ModelCalled:
    """One call of a language model within the run (usage and text, not its tool calls)."""

    run_id: str
    time_ns: int
    model: str | None = None
    text: str | None = None
    """Assistant text of a call that is not the final answer: an intermediate response."""
    input_tokens: int | None = None
    output_tokens: int | None = None
    cost_usd: float | None = None
    span_id: str | None = None
    agent_name: str | None = None
    parts: tuple[MediaPart, ...] = ()
    """What the intermediate response holds besides its text."""
    reasoning: str | None = None
    """What the model thought before it said this or called tools; recorded only where that is asked for."""
    cache_read_tokens: int | None = None
    """Of the input tokens, those that were read from the provider's cache."""
    cache_write_tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolCalled:
    """The agent called a tool.  `call_id` is the model's id for the call where there is one."""

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
    """False when `call_id` was made up by the source and must not appear in the case."""
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
    """The run's final answer to the user; the last one of a run counts."""

    run_id: str
    time_ns: int
    content: str | None
    capture: Mapping[str, str] = field(default_factory=dict)
    parts: tuple[MediaPart, ...] = ()
    reasoning: str | None = None


@dataclass(frozen=True, slots=True)
class StateSet:
    """The session's state after the turn; the last one of a run counts."""

    run_id: str
    time_ns: int
    state: Mapping[str, object]
    capture: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class RunEnded:
    """The run is over.  Without it the assembler closes a run by idle time and calls it incomplete."""

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
    """All that is known of a run, from its start to its end, of a source that keeps it itself.

    It takes the place of what was observed of the run before: the turn is revised if it differs.
    """

    run_id: str
    time_ns: int
    events: tuple[RunEvent, ...]


Observation = RunEvent | WholeRun


UNSEEN: Any = object()
"""Stands for a result or arguments that nobody showed."""


def failure_of(error: object) -> Failure:
    """Return what an error says of itself: a failure as it is, a text as its message.

    An exception is named as OpenTelemetry's `exception.type` is: by module and class, a builtin one
    by its class.
    """
    if type(error) is Failure:
        return error
    if not issubclass(type(error), BaseException):
        named = type_name(error).strip("<>")
        return Failure(message=error if issubclass(type(error), str) else named)  # type: ignore[arg-type]
    return Failure(error_name(error), error_text(error))
