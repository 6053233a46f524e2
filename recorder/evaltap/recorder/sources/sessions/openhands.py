"""OpenHands: the events of a conversation, as its servers, `trajectory.json` and its benchmarks have them.

Sources: the event types of OpenHands (`action`, `observation`, `source`), and of the OpenHands SDK, whose
events have a `kind` (`MessageEvent`, `ActionEvent`, `ObservationEvent`, `AgentErrorEvent`).  Both state what
the models have used so far, which becomes the tokens and the cost of a call by subtraction.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    text_of,
    time_of,
    usd,
    value_of,
    word,
)
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import tokens
from evaltap.schemas.data import JsonObject

NAME = "openhands"
_SILENT = ("change_agent_state", "recall", "system", "null", "agent_state_changed", "condensation")
"""Actions and observations of the system, not of the agent."""
_KINDS = frozenset({"MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent"})
_FAILED = ("AgentErrorEvent", "UserRejectObservation")
_BROKEN = ("ConversationErrorEvent", "ServerErrorEvent")
_TEXTS = ("content", "final_thought", "thought")
_SOURCES = ("agent", "environment", "hook", "user")
_ADDED = ("kind", "security_risk", "summary")
"""What OpenHands adds to the arguments of a call."""
_LISTS = ("events", "history", "items")
_IDS = ("id", "instance_id")


def conversations(document: object) -> list[Conversation] | None:
    if isinstance(document, list) and document:
        found = [_conversation(one) if "history" in mapping(one) else None for one in document]
        if None not in found:
            return [one for one in found if one is not None]
    one = _conversation(document)
    return None if one is None else [one]


def is_event(document: object) -> bool:
    """Return whether a document is one event; OpenHands stores each in a file of its own."""
    one = mapping(document)
    return {"id", "timestamp"} <= one.keys() and bool(
        one.get("source") in _SOURCES and {"kind", "action", "observation"} & one.keys()
    )


def conversation_of(events: Iterable[JsonObject], name: str) -> Conversation | None:
    """Return the conversation of events in any order; None if they are none."""
    ordered = sorted(events, key=lambda one: str(one["timestamp"]))
    found = _conversation(ordered)
    return None if found is None else replace(found, session_id=name)


def _conversation(document: object) -> Conversation | None:
    held: object = document
    if isinstance(document, dict):
        held = next((document[key] for key in _LISTS if key in document), None)
    events = objects(held)
    if any(str(one.get("kind")) in _KINDS for one in events):
        read = _sdk_messages
    elif any(
        one.get("source") in _SOURCES and ("action" in one or "observation" in one)
        for one in events
    ):
        read = _messages
    else:
        return None
    used = _Used()
    messages: list[Message] = []
    for event in events:
        messages += used.counted(event, [*read(event)])
    whole = mapping(document)
    session = next((whole[key] for key in _IDS if isinstance(whole.get(key), str)), None)
    error = word(whole.get("error"))
    return Conversation(
        framework=NAME,
        session_id=word(session),
        agent_name=NAME,
        messages=messages,
        failure=Failure(None, error) if error else None,
    )


class _Used:
    """What the models have used so far in a conversation, of which each event states the total."""

    def __init__(self) -> None:
        self._input = self._output = self._cached = 0
        self._cost = 0.0

    def counted(self, event: JsonObject, messages: list[Message]) -> list[Message]:
        """Return the messages of an event, with what was added since the last one."""
        stated = [one for one in _metrics(event) if isinstance(one, dict)]
        totals = [mapping(one.get("accumulated_token_usage")) for one in stated]
        if not any(totals):
            return messages
        given, out, cached = (
            sum(count for one in totals if type(count := one.get(key)) is int)
            for key in ("prompt_tokens", "completion_tokens", "cache_read_tokens")
        )
        cost = sum(usd(one.get("accumulated_cost")) or 0.0 for one in stated)
        if given < self._input or out < self._output or (given, out) == (self._input, self._output):
            return messages
        model = totals[0].get("model") or stated[0].get("model_name")
        call = Message(
            role="assistant",
            time_ns=time_of(event.get("timestamp")),
            model=word(model),
            tokens=tokens(given - self._input, out - self._output, max(0, cached - self._cached)),
            cost_usd=max(0.0, cost - self._cost) if cost else None,
        )
        self._input, self._output, self._cached, self._cost = given, out, cached, cost
        return [call, *messages]


def _metrics(event: JsonObject) -> list[object]:
    """Return the totals that an event states, one for each use of models."""
    value = mapping(event.get("value"))
    stats = value if event.get("key") == "stats" else mapping(value.get("stats"))
    by_use = mapping(stats.get("usage_to_metrics"))
    return [event["llm_metrics"]] if "llm_metrics" in event else [*by_use.values()]


def _messages(event: JsonObject) -> Iterator[Message]:
    now, extras = time_of(event.get("timestamp")), mapping(event.get("extras"))
    action, observation = event.get("action"), event.get("observation")
    if observation == "agent_state_changed" and extras.get("agent_state") == "error":
        reason = text_of(extras.get("reason")) or text_of(event.get("message")) or None
        yield Message(role="assistant", time_ns=now, failure=Failure(None, reason))
    elif observation == "agent_state_changed" and extras.get("agent_state") == "stopped":
        yield Message(role="assistant", time_ns=now, stopped=True)
    if action not in _SILENT and observation not in _SILENT:
        yield from _acted(event, now) or _observed(event, now)


def _acted(event: JsonObject, now: int) -> list[Message]:
    """Return what the user or the agent did, if the event is an action of theirs."""
    action, source, args = event.get("action"), event.get("source"), mapping(event.get("args"))
    if action == "message" and source == "user":
        return [Message(role="user", text=text_of(args.get("content")), time_ns=now)]
    if action in ("message", "finish") and source == "agent":
        said = [text_of(args.get(key)) for key in _TEXTS]
        text = next(filter(None, said), None) or text_of(event.get("message"))
        return [Message(role="assistant", text=text, time_ns=now)]
    if isinstance(action, str) and source == "agent":
        name, given = _asked(mapping(event.get("tool_call_metadata")))
        given = given or {key: value for key, value in args.items() if key != "thought"}
        call = Call(name or action, given, str(event.get("id")))
        text = text_of(args.get("thought")) or None
        return [Message(role="assistant", text=text, time_ns=now, calls=(call,))]
    return []


def _observed(event: JsonObject, now: int) -> list[Message]:
    """Return what came of an action; an error without one is the run's."""
    observation = event.get("observation")
    if observation is not None and event.get("cause") is not None:
        return [_result(event, now)]
    if observation != "error":
        return []
    failure = Failure(None, text_of(event.get("content")) or text_of(event.get("message")))
    return [Message(role="assistant", time_ns=now, failure=failure)]


def _asked(metadata: Mapping[str, object]) -> tuple[str | None, object]:
    """Return the name and the arguments of a call as the model wrote them; None if they are not there."""
    name, call_id = metadata.get("function_name"), metadata.get("tool_call_id")
    for choice in objects(mapping(metadata.get("model_response")).get("choices")):
        for call in objects(mapping(choice.get("message")).get("tool_calls")):
            if call.get("id") == call_id:
                given = value_of(mapping(call.get("function")).get("arguments"))
                return word(name), given
    return word(name), None


def _result(event: JsonObject, now: int) -> Message:
    code = mapping(mapping(event.get("extras")).get("metadata")).get("exit_code")
    result = value_of(event.get("content"))
    failure = None
    # -1: the command is still running.
    if event["observation"] == "error" or (isinstance(code, int) and code not in (0, -1)):
        kind = f"exit code {code}" if isinstance(code, int) else None
        failure = Failure(kind, text_of(event.get("content")))
    call_id = str(event["cause"])
    return Message(role="tool", time_ns=now, call_id=call_id, result=result, failure=failure)


def _sdk_messages(event: JsonObject) -> Iterator[Message]:
    now, kind = time_of(event.get("timestamp")), event.get("kind")
    asked = mapping(event.get("tool_call"))
    call_id, name = event.get("tool_call_id"), event.get("tool_name", asked.get("name"))
    if kind == "MessageEvent":
        text = text_of(mapping(event.get("llm_message")).get("content"))
        is_user = event.get("source") == "user"
        yield Message(role="user" if is_user else "assistant", text=text, time_ns=now)
    elif kind == "ActionEvent" and isinstance(name, str):
        yield _action(event, now, name, str(call_id or ""))
    elif kind == "ObservationEvent" and name != "finish":
        yield _observation(mapping(event.get("observation")), now, str(call_id or ""))
    elif kind == "PauseEvent":
        yield Message(role="assistant", time_ns=now, stopped=True)
    elif kind in _BROKEN:
        code, detail = event.get("code"), text_of(event.get("detail"))
        failure = Failure(word(code), detail)
        yield Message(role="assistant", time_ns=now, failure=failure)
    elif kind in _FAILED:
        failure = Failure(None, text_of(event.get("error", event.get("rejection_reason"))))
        yield Message(role="tool", time_ns=now, call_id=str(call_id or ""), failure=failure)


def _action(event: JsonObject, now: int, name: str, call_id: str) -> Message:
    """Return a call, or the answer if the agent finishes."""
    action = mapping(event.get("action"))
    written = mapping(value_of(mapping(event.get("tool_call")).get("arguments")))
    written = written or mapping(action.get("data")) or action
    given = {key: value for key, value in written.items() if key not in _ADDED}
    text = text_of(event.get("thought")) or None
    if name == "finish":
        return Message(role="assistant", text=text_of(given.get("message")) or text, time_ns=now)
    return Message(role="assistant", text=text, time_ns=now, calls=(Call(name, given, call_id),))


def _observation(found: Mapping[str, object], now: int, call_id: str) -> Message:
    text = text_of(found.get("content", found.get("output")))
    failed = found.get("is_error") or found.get("exit_code") not in (0, None, -1)
    return Message(
        role="tool",
        time_ns=now,
        call_id=call_id,
        result=value_of(text) if text is not None else found or None,
        failure=Failure(None, text) if failed else None,
    )
