"""Framework-neutral events of a run: sources produce them, the assembler consumes them.

A source (a runner plugin, the span reader, the plain API, a file) converts its framework's events
to these records; it never builds eval cases itself. Each observation carries the `run_id`, unique
in the process, and a time in nanoseconds since the epoch. They may arrive in any order: the
assembler sorts by time, then by arrival.

`None` always means *not seen*; an empty string means the content was seen and is empty. `capture`
gives the reason why something was not seen, with the terms of `evaltap.schemas` (missing,
truncated, redacted, synthesized, ambiguous), keyed by case field.

`snapshot` makes an observation safe to keep: it copies and truncates the content and shortens ids. It runs
on the agent's thread for observations from plugins and the plain API, so that later changes to the agent's
objects do not show. Arguments, results and state stay frozen until the case is built, so an open turn takes
no more memory than its JSON.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from evaltap.recorder.copying import freeze, name, number, text, thaw
from evaltap.recorder.foreign import error_name, error_text, type_name
from evaltap.recorder.media import digested, kept
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.tokens import UNKNOWN, Tokens
from evaltap.schemas.chat.media import MediaPart

MAX_CONTEXT = 8
"""Maximum context messages per run; an agent that changes its instructions on each call has more."""
MAX_HISTORY = 20
"""Maximum messages of the preceding conversation, the latest ones, if the models received them."""
OVERHEAD_BYTES = 300
"""Size of an observation in the queue, apart from its content."""
RunStatus = Literal["ok", "error", "incomplete"]
PAUSED = "paused"
"""Close reason of a run that waits for the result of a call, as for a person's approval."""


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
    tokens: Tokens = UNKNOWN
    cost_usd: float | None = None
    span_id: str | None = None
    agent_name: str | None = None
    parts: tuple[MediaPart, ...] = ()
    """Media of the intermediate response."""
    reasoning: str | None = None
    """The model's reasoning before this text or its tool calls; recorded only if configured."""
    failed: bool = False
    """Whether there was no answer, and so no usage that could be missing."""


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
    """False when the source generated `call_id`; the case then leaves it out, unless no model gives ids to
    such calls (`capture` does not miss one) and another call was made within this one."""
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
    state: object = None
    """What the call wrote to the session's state; `None` if nothing, or if that is not known."""


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
    """run_ended | root_span_ended | paused | next_message | idle_timeout | shutdown | evicted."""
    resumed: bool = False
    """Whether the run began with calls that it had not requested: it may continue one that has paused."""
    awaits: tuple[str, ...] = ()
    """Ids of calls whose result, if there is one, is not the last: it comes when the turn goes on."""
    waited_ns: int = 0
    """For how long the turn waited between its parts; no part of its latency."""


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


def snapshot(
    observation: Observation, field_max_bytes: int, *, reasoning: bool = False
) -> tuple[Observation, int]:
    """Return an independent copy for the queue and its size in bytes; reasoning only with `reasoning`."""
    if not isinstance(observation, WholeRun):
        return snapshot_event(observation, field_max_bytes, reasoning=reasoning)
    events: list[RunEvent] = []
    weight = 0
    for event in observation.events:
        yield_to_agent()
        copied, event_weight = snapshot_event(event, field_max_bytes, reasoning=reasoning)
        events.append(copied)
        weight += event_weight
    return WholeRun(observation.run_id, observation.time_ns, tuple(events)), weight


def snapshot_event(
    event: RunEvent, field_max_bytes: int, *, reasoning: bool = False
) -> tuple[RunEvent, int]:
    """Return a copy of one event and its size in bytes; raises TypeError for other objects."""
    if not reasoning:
        event = without_reasoning(event)
    kind = type(event)
    copy_of = _SNAPSHOTS.get(kind) or next(
        (copy_of for base, copy_of in _SNAPSHOTS.items() if isinstance(event, base)), None
    )
    if copy_of is None:
        raise TypeError(f"no observation: {kind.__name__}")
    return copy_of(event, field_max_bytes)


def without_reasoning(event: RunEvent) -> RunEvent:
    """Return the event without the model's reasoning."""
    if isinstance(event, ModelCalled | Responded) and event.reasoning is not None:
        return replace(event, reasoning=None)
    return event


def measured(observation: Observation) -> Observation:
    """Return the observation with media bytes replaced by their sizes and digests.

    Runs on the background thread, so that the bytes need not be kept until the turn ends.
    """
    if not isinstance(observation, UserMessage | Responded | ModelCalled) or not observation.parts:
        return observation
    return replace(observation, parts=digested(observation.parts))


def _tool_called(seen: ToolCalled, limit: int) -> tuple[RunEvent, int]:
    arguments, capture = _value(seen.arguments, "arguments", seen.capture, limit)
    copied = ToolCalled(
        seen.run_id,
        seen.time_ns,
        name(seen.call_id) or "",
        name(seen.name) or "",
        arguments,
        name(seen.agent_name),
        name(seen.parent_call_id),
        seen.id_known,
        capture,
    )
    return copied, OVERHEAD_BYTES + len(arguments or b"")


def _tool_returned(seen: ToolReturned, limit: int) -> tuple[RunEvent, int]:
    result, capture = _value(seen.result, "result", seen.capture, limit)
    state, capture = _value(seen.state, "stateDelta", capture, limit)
    copied = ToolReturned(
        seen.run_id,
        seen.time_ns,
        name(seen.call_id) or "",
        result,
        _failure(seen.failure, limit),
        number(seen.duration_ms),
        capture,
        state,
    )
    return copied, OVERHEAD_BYTES + len(result or b"") + len(state or b"")


def _context(seen: ContextMessage, limit: int) -> tuple[RunEvent, int]:
    content, was_cut = text(seen.content, limit)
    capture = {**seen.capture, "contextMessages": "truncated"} if was_cut else seen.capture
    copied = ContextMessage(seen.run_id, seen.time_ns, content, capture, seen.role)
    return copied, OVERHEAD_BYTES + len(content or "")


def _run_ended(seen: RunEnded, limit: int) -> tuple[RunEvent, int]:
    if seen.failure is None:
        return seen, OVERHEAD_BYTES
    return replace(seen, failure=_failure(seen.failure, limit)), OVERHEAD_BYTES


def _message(seen: UserMessage | Responded, limit: int) -> tuple[RunEvent, int]:
    content, was_cut = text(seen.content, limit)
    weight = OVERHEAD_BYTES + len(content or "")
    if parts := seen.parts:
        parts, media_bytes, left_out = kept(parts)
        was_cut |= left_out
        weight += media_bytes
    thoughts = seen.reasoning if isinstance(seen, Responded) else None
    if not parts and thoughts is None and content is seen.content and not was_cut:
        return seen, weight
    key = "userContent" if isinstance(seen, UserMessage) else "finalResponse"
    capture = {**seen.capture, key: "truncated"} if was_cut else seen.capture
    copied = replace(seen, content=content, capture=capture, parts=parts)
    if thoughts is None or not isinstance(copied, Responded):
        return copied, weight
    reasoning, _ = text(thoughts, limit)
    return replace(copied, reasoning=reasoning), weight + len(reasoning or "")


def _model_called(seen: ModelCalled, limit: int) -> tuple[RunEvent, int]:
    content, _ = text(seen.text, limit)
    reasoning, _ = text(seen.reasoning, limit)
    parts, media_bytes, _ = kept(seen.parts) if seen.parts else ((), 0, False)
    copied = ModelCalled(
        seen.run_id,
        seen.time_ns,
        name(seen.model),
        content,
        Tokens(*map(_count, seen.tokens)),
        number(seen.cost_usd),
        name(seen.span_id),
        name(seen.agent_name),
        parts,
        reasoning,
        seen.failed is True,
    )
    return copied, OVERHEAD_BYTES + len(content or "") + len(reasoning or "") + media_bytes


def _run_started(seen: RunStarted, limit: int) -> tuple[RunEvent, int]:
    state: Any = None
    if seen.state is not None:
        state, _ = _frozen_state(seen.state, limit)
    copied = replace(
        seen,
        session_id=name(seen.session_id),
        app_name=name(seen.app_name),
        user_id=name(seen.user_id),
        agent_name=name(seen.agent_name),
        trace_id=name(seen.trace_id),
        root_span_id=name(seen.root_span_id),
        invocation_id=name(seen.invocation_id),
        state=state,
    )
    return copied, OVERHEAD_BYTES + len(state or b"")


def _state_set(seen: StateSet, limit: int) -> tuple[RunEvent, int]:
    state, was_cut = _frozen_state(seen.state, limit)
    capture = {**seen.capture, "state": "truncated"} if was_cut else seen.capture
    copied: Any = replace(seen, state=state, capture=capture)
    return copied, OVERHEAD_BYTES + len(state)


def _frozen_state(state: object, limit: int) -> tuple[Any, bool]:
    frozen, was_cut = freeze(state, limit)
    if not frozen.startswith(b"{"):  # not a mapping, but it has some content
        frozen, _ = freeze({"state": thaw(frozen)}, limit)
    return frozen, was_cut


def _value(value: object, field: str, capture: Any, limit: int) -> tuple[Any, Any]:
    if value is None:
        return None, capture
    frozen, was_cut = freeze(value, limit)
    return frozen, {**capture, field: "truncated"} if was_cut else capture


def _failure(failure: Failure | None, limit: int) -> Failure | None:
    if failure is None:
        return None
    return Failure(name(failure.type), text(failure.message, limit)[0])


def _count(value: object) -> int | None:
    whole = number(value)
    return whole if type(whole) is int and 0 <= whole < 1 << 53 else None


_SNAPSHOTS: dict[type, Callable[[Any, int], tuple[RunEvent, int]]] = {
    ToolCalled: _tool_called,
    ToolReturned: _tool_returned,
    ModelCalled: _model_called,
    UserMessage: _message,
    ContextMessage: _context,
    Responded: _message,
    RunStarted: _run_started,
    StateSet: _state_set,
    RunEnded: _run_ended,
}
