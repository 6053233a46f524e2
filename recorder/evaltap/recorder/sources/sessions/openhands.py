"""OpenHands: the events of a conversation, as its servers and `trajectory.json` have them.

Sources: the event types of OpenHands (`action`, `observation`, `source`), and of the OpenHands SDK, whose
events have a `kind` (`MessageEvent`, `ActionEvent`, `ObservationEvent`, `AgentErrorEvent`).
"""

from collections.abc import Iterator

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    objects,
    text_of,
    time_of,
    value_of,
)
from evaltap.recorder.telemetry.flat_spans import mapping
from evaltap.schemas.data import JsonObject

NAME = "openhands"
_SILENT = ("change_agent_state", "recall", "system", "null", "agent_state_changed", "condensation")
"""Actions and observations of the system, not of the agent."""
_KINDS = frozenset({"MessageEvent", "ActionEvent", "ObservationEvent", "AgentErrorEvent"})
_FAILED = ("AgentErrorEvent", "UserRejectObservation")
_TEXTS = ("content", "final_thought", "thought")


def conversations(document: object) -> list[Conversation] | None:
    """Return the conversation; None for other documents."""
    if isinstance(document, dict):
        found = next(
            (document[key] for key in ("events", "history", "items") if key in document), None
        )
        events = objects(found)
    else:
        events = objects(document)
    if any(str(one.get("kind")) in _KINDS for one in events):
        messages = [message for one in events for message in _sdk_messages(one)]
    elif any("source" in one and ("action" in one or "observation" in one) for one in events):
        messages = [message for one in events for message in _messages(one)]
    else:
        return None
    given = document.get("id") if isinstance(document, dict) else None
    session = given if isinstance(given, str) else None
    return [Conversation(framework=NAME, session_id=session, agent_name=NAME, messages=messages)]


def _messages(event: JsonObject) -> Iterator[Message]:
    now, source = time_of(event.get("timestamp")), event.get("source")
    action, observation = event.get("action"), event.get("observation")
    args = mapping(event.get("args"))
    if action in _SILENT or observation in _SILENT:
        return
    if action == "message" and source == "user":
        yield Message(role="user", text=text_of(args.get("content")), time_ns=now)
    elif action in ("message", "finish") and source == "agent":
        said = [text_of(args.get(key)) for key in _TEXTS]
        text = next((one for one in said if one), None) or text_of(event.get("message"))
        yield Message(role="assistant", text=text, time_ns=now)
    elif isinstance(action, str) and source == "agent":
        name = mapping(event.get("tool_call_metadata")).get("function_name")
        given = {key: value for key, value in args.items() if key != "thought"}
        call = Call(name if isinstance(name, str) else action, given, str(event.get("id")))
        text = text_of(args.get("thought")) or None
        yield Message(role="assistant", text=text, time_ns=now, calls=(call,))
    elif observation == "error" and event.get("cause") is None:
        failure = Failure(None, text_of(event.get("content")) or text_of(event.get("message")))
        yield Message(role="assistant", time_ns=now, failure=failure)
    elif observation is not None and event.get("cause") is not None:
        yield _result(event, now)


def _result(event: JsonObject, now: int) -> Message:
    code = mapping(mapping(event.get("extras")).get("metadata")).get("exit_code")
    result = value_of(event.get("content"))
    failure = None
    if event["observation"] == "error" or (isinstance(code, int) and code != 0):
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
        action = mapping(event.get("action"))
        if name == "finish":
            yield Message(role="assistant", text=text_of(action.get("message")), time_ns=now)
            return
        given = {key: value for key, value in action.items() if key != "kind"}
        call = Call(name, given or value_of(asked.get("arguments")), str(call_id or ""))
        text = text_of(event.get("thought")) or None
        yield Message(role="assistant", text=text, time_ns=now, calls=(call,))
    elif kind == "ObservationEvent" and name != "finish":
        found = mapping(event.get("observation"))
        text = text_of(found.get("content", found.get("output")))
        failed = found.get("is_error") or found.get("exit_code") not in (0, None, -1)
        failure = Failure(None, text) if failed else None
        yield Message(
            role="tool",
            time_ns=now,
            call_id=str(call_id or ""),
            result=value_of(text) if text is not None else found or None,
            failure=failure,
        )
    elif kind in _FAILED:
        failure = Failure(None, text_of(event.get("error", event.get("rejection_reason"))))
        yield Message(role="tool", time_ns=now, call_id=str(call_id or ""), failure=failure)
