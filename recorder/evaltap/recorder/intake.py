"""Make an observation safe to keep: its content copied and cut, its ids short texts.

Runs on the agent's thread for what plugins and the plain API observe, so that later changes of the
agent's objects do not show; `thaw_observation` gives the values back on the background thread.
"""

from dataclasses import replace
from typing import Any

from evaltap.recorder.observation import (
    Failure,
    ModelCalled,
    Observation,
    Responded,
    RunEnded,
    RunStarted,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.payload import cut, freeze, name, thaw

OVERHEAD_BYTES = 300
"""What an observation weighs in the queue besides its content."""


def take(observation: Observation, field_max_bytes: int) -> tuple[Observation, int]:
    """Return a copy of its own for the queue and its weight in bytes."""
    if isinstance(observation, ToolCalled):
        return _tool_called(observation, field_max_bytes)
    if isinstance(observation, ToolReturned):
        return _tool_returned(observation, field_max_bytes)
    if isinstance(observation, UserMessage):
        return _message(observation, "userContent", field_max_bytes)
    if isinstance(observation, Responded):
        return _message(observation, "finalResponse", field_max_bytes)
    if isinstance(observation, ModelCalled):
        return _model_called(observation, field_max_bytes)
    if isinstance(observation, RunStarted):
        return _run_started(observation, field_max_bytes)
    if isinstance(observation, RunEnded):
        failure = _failure(observation.failure, field_max_bytes)
        return replace(observation, failure=failure), OVERHEAD_BYTES
    raise TypeError(f"no observation: {type(observation).__name__}")


def thaw_observation(observation: Observation) -> Observation:
    """Return the observation with its JSON values instead of their frozen form."""
    if isinstance(observation, ToolCalled):
        return replace(observation, arguments=thaw(observation.arguments))
    if isinstance(observation, ToolReturned):
        return replace(observation, result=thaw(observation.result))
    if isinstance(observation, RunStarted) and observation.state is not None:
        return replace(observation, state=thaw(observation.state))
    return observation


def _tool_called(seen: ToolCalled, limit: int) -> tuple[Observation, int]:
    arguments, capture = _value(seen.arguments, "arguments", seen.capture, limit)
    taken = replace(
        seen,
        call_id=name(seen.call_id) or "",
        name=name(seen.name) or "",
        arguments=arguments,
        agent_name=name(seen.agent_name),
        parent_call_id=name(seen.parent_call_id),
        capture=capture,
    )
    return taken, OVERHEAD_BYTES + len(arguments or b"")


def _tool_returned(seen: ToolReturned, limit: int) -> tuple[Observation, int]:
    result, capture = _value(seen.result, "result", seen.capture, limit)
    taken = replace(
        seen,
        call_id=name(seen.call_id) or "",
        result=result,
        failure=_failure(seen.failure, limit),
        duration_ms=_number(seen.duration_ms),
        capture=capture,
    )
    return taken, OVERHEAD_BYTES + len(result or b"")


def _message(
    seen: UserMessage | Responded, field: str, limit: int
) -> tuple[Observation, int]:
    content, was_cut = _text(seen.content, limit)
    if content is seen.content and not was_cut:
        return seen, OVERHEAD_BYTES + len(content or "")
    capture = {**seen.capture, field: "truncated"} if was_cut else seen.capture
    return replace(seen, content=content, capture=capture), OVERHEAD_BYTES + len(content or "")


def _model_called(seen: ModelCalled, limit: int) -> tuple[Observation, int]:
    text, _ = _text(seen.text, limit)
    taken = replace(
        seen,
        model=name(seen.model),
        text=text,
        input_tokens=_count(seen.input_tokens),
        output_tokens=_count(seen.output_tokens),
        cost_usd=_number(seen.cost_usd),
        span_id=name(seen.span_id),
        agent_name=name(seen.agent_name),
    )
    return taken, OVERHEAD_BYTES + len(text or "")


def _run_started(seen: RunStarted, limit: int) -> tuple[Observation, int]:
    state: Any = None
    if seen.state is not None:
        state, _ = freeze(seen.state, limit)
    taken = replace(
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
    return taken, OVERHEAD_BYTES + len(state or b"")


def _value(value: object, field: str, capture: Any, limit: int) -> tuple[Any, Any]:
    if value is None:
        return None, capture
    frozen, was_cut = freeze(value, limit)
    return frozen, {**capture, field: "truncated"} if was_cut else capture


def _text(text: object, limit: int) -> tuple[str | None, bool]:
    if text is None:
        return None, False
    if type(text) is not str:
        plain = thaw(freeze(text, limit)[0])
        text = plain if isinstance(plain, str) else freeze(plain, limit)[0].decode()
    return cut(text, limit)


def _failure(failure: Failure | None, limit: int) -> Failure | None:
    if failure is None:
        return None
    return Failure(name(failure.type), _text(failure.message, limit)[0])


def _number(value: object) -> float | None:
    return value if type(value) in (int, float) and abs(value) < 1e300 else None  # type: ignore[arg-type, return-value]


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value < 1 << 53 else None
