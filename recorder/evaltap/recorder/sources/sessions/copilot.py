"""Copilot CLI: the events of a session below `~/.copilot/session-state`.

Source: the session events of GitHub's Copilot SDK (`user.message`, `assistant.message`,
`tool.execution_complete`); each has `type`, `data`, `id` and `timestamp`.
"""

from collections.abc import Iterator

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    text_of,
    time_of,
    value_of,
    word,
)
from evaltap.recorder.telemetry.flat_spans import objects
from evaltap.recorder.tokens import tokens
from evaltap.schemas.data import JsonObject

NAME = "copilot-cli"


def conversations(document: object) -> list[Conversation] | None:
    events = [one for one in objects(document) if isinstance(one.get("data"), dict)]
    kinds = {one.get("type") for one in events if isinstance(one.get("type"), str)}
    if not kinds & {"session.start", "user.message", "assistant.message"}:
        return None
    session: str | None = None
    messages: list[Message] = []
    counts = "assistant.usage" not in kinds
    for event in events:
        data = event["data"]
        if event.get("type") == "session.start" and isinstance(data.get("sessionId"), str):
            session = session or data["sessionId"]
        # A sub-agent's messages are within a call.
        if data.get("parentToolCallId") is None and event.get("agentId") is None:
            now = time_of(event.get("timestamp"))
            messages += _messages(event.get("type"), data, now, counts=counts)
    return [Conversation(framework=NAME, session_id=session, agent_name=NAME, messages=messages)]


def _messages(kind: object, data: JsonObject, now: int, *, counts: bool) -> Iterator[Message]:
    """Yield the message of an event; `counts` if messages have the only counts of tokens."""
    text, model = text_of(data.get("content")), data.get("model")
    if kind == "user.message":
        # Skills, other agents and the autopilot write in the user's name, too.
        if data.get("source") in (None, "user") and not data.get("isAutopilotContinuation"):
            yield Message(role="user", text=text, time_ns=now)
    elif kind == "assistant.message":
        made = [
            Call(one["name"], value_of(one.get("arguments")), str(one.get("toolCallId") or ""))
            for one in objects(data.get("toolRequests"))
            if isinstance(one.get("name"), str)
        ]
        yield Message(
            role="assistant",
            text=text,
            time_ns=now,
            calls=tuple(made),
            model=word(model) if counts else None,
            tokens=tokens(None, data.get("outputTokens") if counts else None),
        )
    elif kind == "assistant.usage":
        yield Message(
            role="assistant",
            time_ns=now,
            model=word(model),
            tokens=tokens(
                data.get("inputTokens"), data.get("outputTokens"), data.get("cacheReadTokens")
            ),
        )
    elif kind == "tool.execution_complete":
        yield _result(data, now)
    elif kind == "session.error":
        failure = Failure(word(data.get("errorType")), text_of(data.get("message")))
        yield Message(role="assistant", time_ns=now, failure=failure)
    elif kind == "abort":
        yield Message(role="assistant", time_ns=now, stopped=True)


def _result(data: JsonObject, now: int) -> Message:
    result, error = data.get("result"), data.get("error")
    found = result.get("content") if isinstance(result, dict) else result
    failure = None
    if data.get("success") is False:
        about = error if isinstance(error, dict) else {"message": error}
        failure = Failure(word(about.get("code")), text_of(about.get("message")))
    return Message(
        role="tool",
        time_ns=now,
        call_id=str(data.get("toolCallId") or ""),
        result=value_of(found),
        failure=failure,
    )
