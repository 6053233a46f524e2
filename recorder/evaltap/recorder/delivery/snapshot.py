"""Make an observation safe to keep: copy and truncate its content, shorten its ids.

Runs on the agent's thread for observations from plugins and the plain API, so that later changes to
the agent's objects do not show. Arguments, results and state stay frozen until the case is built,
so an open turn takes no more memory than its JSON.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from evaltap.recorder.media import digested, kept
from evaltap.recorder.observation import (
    ContextMessage,
    Failure,
    ModelCalled,
    Observation,
    Responded,
    RunEnded,
    RunEvent,
    RunStarted,
    StateSet,
    ToolCalled,
    ToolReturned,
    UserMessage,
    WholeRun,
)
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.payload import freeze, name, number, text, thaw

OVERHEAD_BYTES = 300
"""Size of an observation in the queue, apart from its content."""


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
    copied = ToolReturned(
        seen.run_id,
        seen.time_ns,
        name(seen.call_id) or "",
        result,
        _failure(seen.failure, limit),
        number(seen.duration_ms),
        capture,
    )
    return copied, OVERHEAD_BYTES + len(result or b"")


def _user_message(seen: UserMessage, limit: int) -> tuple[RunEvent, int]:
    return _message(seen, "userContent", limit)


def _responded(seen: Responded, limit: int) -> tuple[RunEvent, int]:
    return _message(seen, "finalResponse", limit)


def _context(seen: ContextMessage, limit: int) -> tuple[RunEvent, int]:
    content, was_cut = text(seen.content, limit)
    capture = {**seen.capture, "contextMessages": "truncated"} if was_cut else seen.capture
    copied = ContextMessage(seen.run_id, seen.time_ns, content, capture, seen.role)
    return copied, OVERHEAD_BYTES + len(content or "")


def _run_ended(seen: RunEnded, limit: int) -> tuple[RunEvent, int]:
    if seen.failure is None:
        return seen, OVERHEAD_BYTES
    return replace(seen, failure=_failure(seen.failure, limit)), OVERHEAD_BYTES


def _message(seen: UserMessage | Responded, field: str, limit: int) -> tuple[RunEvent, int]:
    content, was_cut = text(seen.content, limit)
    weight = OVERHEAD_BYTES + len(content or "")
    parts = seen.parts
    if parts:
        parts, media_bytes, left_out = kept(parts)
        was_cut |= left_out
        weight += media_bytes
    thoughts = seen.reasoning if isinstance(seen, Responded) else None
    if not parts and thoughts is None and content is seen.content and not was_cut:
        return seen, weight
    capture = {**seen.capture, field: "truncated"} if was_cut else seen.capture
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
        _count(seen.input_tokens),
        _count(seen.output_tokens),
        number(seen.cost_usd),
        name(seen.span_id),
        name(seen.agent_name),
        parts,
        reasoning,
        _count(seen.cache_read_tokens),
        _count(seen.cache_write_tokens),
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
    UserMessage: _user_message,
    ContextMessage: _context,
    Responded: _responded,
    RunStarted: _run_started,
    StateSet: _state_set,
    RunEnded: _run_ended,
}
