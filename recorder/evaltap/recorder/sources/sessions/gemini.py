"""Gemini CLI: its session files below `~/.gemini/tmp/*/chats`.

Source: `ConversationRecord` of gemini-cli's chat recording service.  Newer versions write JSON Lines: the
session's record, then a message on each line, of which a later one with the same id counts, and changes
(`$set`, `$rewindTo`).
"""

import re
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
from evaltap.recorder.tokens import tokens
from evaltap.schemas.data import JsonObject

NAME = "gemini-cli"
_FAILED = ("error", "cancelled")
_EXIT = re.compile(r"^Exit Code: ([1-9]\d*)$", re.MULTILINE)
"""In the result of a shell command that failed."""
_SHELL = "run_shell_command"
_CANCELLED = "Request cancelled."


def conversations(document: object) -> list[Conversation] | None:
    """Return the session; None for other documents."""
    if isinstance(document, dict) and {"sessionId", "messages"} <= document.keys():
        records = objects(document["messages"])
        session = document
    else:
        lines = objects(document)
        if not lines or not {"sessionId", "projectHash"} <= lines[0].keys():
            return None
        session = lines[0]
        records = _records(lines)
    if "projectHash" not in session and not any(
        one.get("type") in ("user", "gemini") for one in records
    ):
        return None
    given = session.get("sessionId")
    if session.get("kind") == "subagent":
        records = []  # its questions are the main agent's
    return [
        Conversation(
            framework=NAME,
            session_id=given if isinstance(given, str) else None,
            agent_name=NAME,
            messages=[message for one in records for message in _messages(one)],
        )
    ]


def _records(lines: list[JsonObject]) -> list[JsonObject]:
    """Return the messages that the lines of a file leave."""
    latest: dict[str, JsonObject] = {}
    for line in lines:
        replaced = mapping(line.get("$set")).get("messages")
        if replaced is not None:
            latest = {str(one.get("id")): one for one in objects(replaced)}
        elif str(line.get("$rewindTo")) in latest:
            kept = [*latest].index(str(line["$rewindTo"]))
            latest = dict([*latest.items()][:kept])
        elif "id" in line and "type" in line:
            latest[str(line["id"])] = line
    return [*latest.values()]


def _messages(record: JsonObject) -> Iterator[Message]:
    kind, now = record.get("type"), time_of(record.get("timestamp"))
    text = text_of(record.get("displayContent")) or text_of(record.get("content"))
    if kind == "user":
        if text is None and any(
            "functionResponse" in one for one in objects(record.get("content"))
        ):
            return  # what tools returned, as the model received it
        yield Message(role="user", text=text, time_ns=now)
    elif kind == "info" and text == _CANCELLED:
        yield Message(role="assistant", time_ns=now, stopped=True)
    elif kind == "error":
        yield Message(role="assistant", time_ns=now, failure=Failure(None, text))
    elif kind == "gemini":
        used, model = record.get("tokens"), record.get("model")
        used = used if isinstance(used, dict) else {}
        made = [one for one in objects(record.get("toolCalls")) if isinstance(one.get("name"), str)]
        yield Message(
            role="assistant",
            text=text or (None if made else text),
            time_ns=now,
            calls=tuple(Call(one["name"], one.get("args"), _id(one)) for one in made),
            model=model if isinstance(model, str) else None,
            tokens=tokens(used.get("input"), used.get("output"), used.get("cached")),
        )
        for one in made:
            yield _outcome(one, now)


def _id(call: JsonObject) -> str:
    return call["id"] if isinstance(call.get("id"), str) else ""


def _outcome(call: JsonObject, now: int) -> Message:
    result = call.get("result")
    parts = [one.get("functionResponse") for one in objects(result)]
    found = [one.get("response") for one in parts if isinstance(one, dict)]
    value = found[0] if len(found) == 1 else result
    if isinstance(value, dict) and set(value) == {"output"}:
        value = value_of(value["output"])
    failure = None
    if call.get("status") in _FAILED:
        stated = value.get("error") if isinstance(value, dict) else value
        shown = call.get("resultDisplay")
        failure = Failure(str(call["status"]), text_of(stated) or text_of(shown))
    elif call["name"] == _SHELL and isinstance(value, str) and (exited := _EXIT.search(value)):
        failure = Failure(f"exit code {exited[1]}", value)
    return Message(
        role="tool",
        time_ns=max(now, time_of(call.get("timestamp"))),
        call_id=_id(call),
        name=call["name"],
        result=value,
        failure=failure,
    )
