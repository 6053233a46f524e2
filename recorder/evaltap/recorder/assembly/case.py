"""One run's observations as one eval case: trace mode, exactly one turn, canonical JSON form.

The result depends only on what was observed, not on arrival order or duplicates. Keys follow the
order of the file format; a field that was not seen is left out, and `capture` gives the reason if
the source knew it.
"""

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeVar

from evaltap.recorder.copying import thaw
from evaltap.recorder.media import written
from evaltap.recorder.observation import (
    ContextMessage,
    Failure,
    ModelCalled,
    Responded,
    RunEnded,
    RunEvent,
    RunLabels,
    RunStarted,
    StateSet,
    ToolCalled,
    ToolReturned,
    UserMessage,
)
from evaltap.recorder.telemetry.spans import canonical_bytes
from evaltap.schemas.chat.media import MediaPart
from evaltap.schemas.data import JsonObject

_T = TypeVar("_T", bound=RunEvent)


@cache
def installed_version() -> str | None:
    """Return the version of evaltap, None in a program that is bundled without its metadata.

    By the name of the folder: `importlib.metadata` imports fifty modules, a fifth of the recorder's start.
    """
    try:
        found = (one for folder in sys.path for one in Path(folder).glob("evaltap-*.dist-info"))
        folder = next(found, None)
        return folder.name.removesuffix(".dist-info").partition("-")[2] if folder else None
    except Exception:  # turns without the version are better than none
        return None


def case_of(
    observations: Iterable[RunEvent],
    *,
    revision: int = 1,
    close_reason: str = "",
    recorder_version: str | None = None,
) -> JsonObject:
    """Return the eval case of one run; content may still be frozen (see `payload`).

    `close_reason` is set when the run did not end by itself; its status is then incomplete.
    """
    ordered = _in_order(observations)
    started = _of(RunStarted, ordered)
    ended = _of(RunEnded, ordered)
    start = _merged_start(started, ordered)
    end = ended[-1] if ended else None
    turn = _turn(start, end, ordered)
    state = thaw(start.state)
    session_id = start.session_id or start.run_id
    if start.session_id is None:
        turn["capture"] = {"sessionId": "synthesized", **turn.get("capture", {})}
    reason = close_reason or (end.close_reason if end is not None else "")
    labels = start.labels or RunLabels()
    case = _present(
        {
            "evalId": labels.eval_id or session_id,
            "evalMode": "trace",
            "actualConversation": [{key: turn[key] for key in _TURN_KEYS if key in turn}],
            "sessionInput": _present(
                {
                    "appName": (start.app_name if labels.app_name is None else labels.app_name)
                    or None,
                    "userId": start.user_id,
                    "state": dict(state) if state else None,
                }
            ),
            "creationTimestamp": _seconds(start.time_ns),
            "evalSetId": labels.eval_set_id,
            "source": _present(
                {
                    "service": start.origin.service,
                    "framework": start.origin.framework,
                    "convention": start.origin.convention,
                    "version": start.origin.version,
                    "environment": start.origin.environment,
                    "run": labels.run,
                    "trial": labels.trial,
                    "attempt": labels.attempt,
                    "recorderVersion": recorder_version,
                    "closeReason": reason or None,
                    "revision": revision,
                }
            ),
        }
    )
    # Readers of the format reject a case without this key; empty means "unknown".
    case.setdefault("sessionInput", {})
    return case


_ONE_PRICE_TOKENS: Final = 32_000
"""Up to this size of a call, no listed model has another price for its tokens."""
_VOLATILE = ("revision", "samplingReason", "inclusionProbability")
"""Keys of `source` that describe the recording, not the turn."""


def digest_of(case: Mapping[str, Any]) -> str:
    """Return a digest of a case's content, equal for revisions with equal content."""
    source = {key: value for key, value in case["source"].items() if key not in _VOLATILE}
    written = canonical_bytes({**case, "source": source})
    return hashlib.sha256(written).hexdigest()[:16]


def _turn(start: RunStarted, end: RunEnded | None, ordered: Sequence[RunEvent]) -> JsonObject:
    users = _of(UserMessage, ordered)
    user = next((item for item in users if item.content is not None), users[0] if users else None)
    answer, intermediate = _answer(end, ordered)
    capture: dict[str, str] = dict(start.capture)
    if start.session_id is not None:
        capture.pop("sessionId", None)
    for message, field in ((user, "userContent"), (answer, "finalResponse")):
        if message is not None:
            if not all(part.is_whole for part in message.parts):
                # The text itself is complete; text metrics do not need the missing image.
                capture[f"{field}.contentParts" if message.content else field] = "truncated"
            capture.update(message.capture)
    states, context = _of(StateSet, ordered)[-1:], _of(ContextMessage, ordered)
    told: tuple[StateSet | ContextMessage, ...] = (*states, *context)
    for one in told:
        capture.update(one.capture)
    return _present(
        {
            "invocationId": start.invocation_id or start.run_id,
            "contextMessages": _context(context),
            "userContent": user and _message("user", user.content, user.parts),
            "finalResponse": answer and _said(answer),
            "tools": _tools(ordered),
            "intermediateResponses": intermediate,
            "creationTimestamp": _seconds(start.time_ns),
            "capture": capture,
            "telemetry": _telemetry(start, end, ordered),
            "state": thaw(states[0].state) if states else None,
        }
    )


def _context(told: Sequence[ContextMessage]) -> list[JsonObject]:
    """Return the instructions, each once, and the preceding conversation."""
    instructions = _distinct(one.content for one in told if one.role == "system")
    conversation = [(one.role, one.content) for one in told if one.role != "system" and one.content]
    messages = [*(("system", content) for content in instructions), *conversation]
    return [{"role": role, "content": content} for role, content in messages]


def _answer(
    end: RunEnded | None, ordered: Sequence[RunEvent]
) -> tuple[Responded | None, list[JsonObject]]:
    """Return the final answer and the intermediate messages.

    A failed run has no answer: all of its messages are intermediate.
    """
    failed = end is not None and end.status == "error"
    answers = _of(Responded, ordered)
    seen = [] if failed else [item for item in answers if item.content is not None]
    unseen = [item for item in answers if item.content is None]
    intermediate: list[JsonObject] = []
    for item in ordered:
        message = None
        if isinstance(item, ModelCalled):
            # Reasoning without text is still a message, where it is recorded.
            text = "" if item.text is None and item.reasoning else item.text
            message = _message("assistant", text, item.parts, item.reasoning)
        elif failed and isinstance(item, Responded):
            message = _said(item)
        if message is not None:
            intermediate.append(message)
    return next(iter((seen or unseen)[-1:]), None), intermediate


def _said(answer: Responded) -> JsonObject | None:
    return _message("assistant", answer.content, answer.parts, answer.reasoning)


_TURN_KEYS = (
    "invocationId",
    "contextMessages",
    "userContent",
    "finalResponse",
    "tools",
    "intermediateResponses",
    "creationTimestamp",
    "capture",
    "telemetry",
    "state",
)


def _tools(ordered: Sequence[RunEvent]) -> list[JsonObject]:
    calls: dict[str, ToolCalled] = {}
    for call in _of(ToolCalled, ordered):
        calls.setdefault(call.call_id, call)
    returns: dict[str, ToolReturned] = {}
    for returned in _of(ToolReturned, ordered):
        returns[returned.call_id] = returned
    parents = {call.parent_call_id for call in calls.values()}
    # A function's call has no id of the model's, but the calls within it refer to it.
    functions = {key for key in calls.keys() & parents if "id" not in calls[key].capture}
    shown = functions.union(key for key, call in calls.items() if call.id_known)
    return [_tool(call, returns.get(key), shown) for key, call in calls.items()]


def _tool(call: ToolCalled, returned: ToolReturned | None, shown: set[str]) -> JsonObject:
    capture = dict(call.capture)
    if returned is not None:
        capture.update(returned.capture)
    elif "result" not in capture:
        capture["result"] = "missing"
    parent = call.parent_call_id if call.parent_call_id in shown else None
    tool = {
        "id": call.call_id if call.call_id in shown else None,
        "name": call.name,
        "arguments": thaw(call.arguments),
        "result": thaw(returned.result) if returned is not None else None,
        "error": _error(returned.failure) if returned is not None else None,
        "startTime": _seconds(call.time_ns),
        "durationMs": returned.duration_ms if returned is not None else None,
        "capture": capture or None,
        "agent": call.agent_name,
        "parentId": parent,
        "stateDelta": thaw(returned.state) if returned is not None else None,
    }
    # Empty arguments and results were seen, so they stay.
    return {key: value for key, value in tool.items() if value is not None}


def _telemetry(start: RunStarted, end: RunEnded | None, ordered: Sequence[RunEvent]) -> JsonObject:
    models = _of(ModelCalled, ordered)
    calls = [call for call in models if not _has_no_use(call)]
    agents = [start.agent_name]
    agents += [item.agent_name for item in ordered if isinstance(item, ModelCalled | ToolCalled)]
    spans = [call.span_id for call in models if call.span_id is not None]
    return _present(
        {
            "traceId": start.trace_id,
            "rootSpanId": start.root_span_id,
            "lastChatSpanId": spans[-1] if spans else None,
            "models": _distinct(call.model for call in models),
            "inputTokens": _whole_sum(call.tokens.input for call in calls),
            "outputTokens": _whole_sum(call.tokens.output for call in calls),
            "costUsd": _cost(calls),
            "usage": _usage(calls),
            "latencyMs": _latency_ms(start, end) if end is not None else None,
            "status": end.status if end is not None else "incomplete",
            "error": _error(end.failure) if end is not None else None,
            "agents": _distinct(agents),
        }
    )


def _latency_ms(start: RunStarted, end: RunEnded) -> float | None:
    """Return how long a run took; None if its end is not known, or not after its start (by another clock)."""
    took_ns = end.time_ns - start.time_ns - end.waited_ns
    return took_ns / 1e6 if took_ns > 0 else None


def _cost(calls: Sequence[ModelCalled]) -> float | None:
    """Return what all calls have cost; None if the cost of one that may have used tokens is not known."""
    used = (call for call in calls if call.tokens[:2] != (0, 0))
    if any(call.cost_usd is None for call in used):
        return None
    found: float | None = _sum(call.cost_usd for call in calls)
    return found


def _has_no_use(call: ModelCalled) -> bool:
    """Return whether no tokens are missing: a call failed, or what a model said has its call beside it."""
    is_unknown = call.tokens[:2] == (None, None)
    return is_unknown and (call.failed or call.model is None)


def _usage(calls: Sequence[ModelCalled]) -> list[JsonObject]:
    """Return tokens by model, if every call's are known and their sums do not suffice for a price.

    That is so with several models, with cached tokens, and where calls are large: prices depend on the size
    of a call, so these are listed one by one.
    """
    by_model: dict[str, list[ModelCalled]] = {}
    for call in calls:
        if call.model is None or None in call.tokens[:2]:
            return []
        by_model.setdefault(call.model, []).append(call)
    groups = [group for of_model in by_model.values() for group in _of_one_price(of_model)]
    cached = (call.tokens.cache_read or call.tokens.cache_write for call in calls)
    return [_used(group) for group in groups] if len(groups) > 1 or any(cached) else []


def _used(calls: Sequence[ModelCalled]) -> JsonObject:
    return _present(
        {
            "model": calls[0].model,
            "inputTokens": _sum(call.tokens.input for call in calls),
            "outputTokens": _sum(call.tokens.output for call in calls),
            "cachedTokens": _sum(call.tokens.cache_read for call in calls),
            "cacheWriteTokens": _sum(call.tokens.cache_write for call in calls),
        }
    )


def _of_one_price(calls: list[ModelCalled]) -> list[list[ModelCalled]]:
    """Return the calls of a model as one group, or each as its own if their sum may have another price."""
    is_small = sum(call.tokens.input or 0 for call in calls) <= _ONE_PRICE_TOKENS
    return [calls] if is_small else [[call] for call in calls]


def _in_order(observations: Iterable[RunEvent]) -> list[RunEvent]:
    """Sort by time, then kind, then content, and drop exact duplicates."""
    by_moment: dict[tuple[int, str], list[RunEvent]] = {}
    for observation in observations:
        moment = observation.time_ns, type(observation).__name__
        by_moment.setdefault(moment, []).append(observation)
    ordered: list[RunEvent] = []
    for moment in sorted(by_moment):
        group = by_moment[moment]
        if len(group) > 1:
            # Compare whole contents only for ties.
            group = [item for _, item in sorted({repr(item): item for item in group}.items())]
        ordered.extend(group)
    return ordered


def _merged_start(started: Sequence[RunStarted], ordered: Sequence[RunEvent]) -> RunStarted:
    """Return the first start, completed from later ones, or a bare one if there is none."""
    if not started:
        return RunStarted(ordered[0].run_id, ordered[0].time_ns)
    first = started[0]
    for other in started[1:]:
        first = RunStarted(
            first.run_id,
            first.time_ns,
            session_id=first.session_id or other.session_id,
            app_name=first.app_name or other.app_name,
            user_id=first.user_id or other.user_id,
            agent_name=first.agent_name or other.agent_name,
            state=first.state if first.state is not None else other.state,
            origin=first.origin if any(_origin(first)) else other.origin,
            trace_id=first.trace_id or other.trace_id,
            root_span_id=first.root_span_id or other.root_span_id,
            invocation_id=first.invocation_id or other.invocation_id,
            capture={**other.capture, **first.capture},
            labels=first.labels or other.labels,
        )
    return first


def _origin(start: RunStarted) -> tuple[str | None, str | None, str | None]:
    return start.origin.service, start.origin.framework, start.origin.convention


def _of(kind: type[_T], ordered: Sequence[RunEvent]) -> list[_T]:
    return [item for item in ordered if isinstance(item, kind)]


def _message(
    role: str, content: str | None, parts: Sequence[MediaPart] = (), reasoning: str | None = None
) -> JsonObject | None:
    if content is None:
        return None
    message: JsonObject = {"role": role, "content": content}
    if parts:
        message["content_parts"] = written(parts)
    if reasoning:
        message["reasoning_content"] = reasoning
    return message


def _error(failure: Failure | None) -> JsonObject | None:
    if failure is None:
        return None
    # An error without any details must still show as one.
    return _present({"type": failure.type, "message": failure.message}) or {"type": "unknown"}


def _sum(values: Iterable[Any]) -> Any:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _whole_sum(values: Iterable[int | None]) -> int | None:
    """Return the sum; None if a value is missing, as a part of the sum is no sum."""
    found = [*values]
    known = [one for one in found if one is not None]
    return sum(known) if known and len(known) == len(found) else None


def _distinct(values: Iterable[str | None]) -> list[str]:
    return list(dict.fromkeys(value for value in values if value))


def _seconds(time_ns: int) -> float | None:
    return time_ns / 1e9 if time_ns > 0 else None


def _present(fields: Mapping[str, object]) -> JsonObject:
    """Leave out absent or empty fields, as the format does."""
    return {
        key: value
        for key, value in fields.items()
        if value or (value is not None and value != {} and value != [])
    }
