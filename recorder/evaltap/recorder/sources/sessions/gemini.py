"""Gemini CLI: its session files below `~/.gemini/tmp/*/chats`, and what `--output-format stream-json` prints.

Source: `ConversationRecord` of gemini-cli's chat recording service, and its `JsonStreamEvent`.  Newer
versions write JSON Lines: the session's record, then a message on each line, of which a later one with the
same id counts, and changes (`$set`, `$rewindTo`).
"""

import re
from collections.abc import Iterator

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    Role,
    text_of,
    time_of,
    value_of,
    word,
)
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import tokens
from evaltap.schemas.data import JsonObject

NAME = "gemini-cli"
_FAILED = ("error", "cancelled")
_EXIT = re.compile(r"^Exit Code: ([1-9]\d*)$", re.MULTILINE)
"""In the result of a shell command that failed."""
CONTEXT = ("<session_context>", "This is the Gemini CLI. We are setting up the context")
"""How the message begins that Gemini CLI writes in the user's name, before a session."""
_COMMANDS = ("/", "?", "<hook_context>")
"""How records of the user begin that the model does not receive: commands to the program."""
_SHELL = "run_shell_command"
_CANCELLED = "Request cancelled."


def conversations(document: object) -> list[Conversation] | None:
    if isinstance(document, dict) and {"sessionId", "messages"} <= document.keys():
        records = objects(document["messages"])
        session = document
    else:
        lines = objects(document)
        if any(line.get("type") == "init" and "session_id" in line for line in lines):
            return [_stream(lines)]
        if not lines or not {"sessionId", "projectHash"} <= lines[0].keys():
            return None
        session = lines[0]
        records = _records(lines)
    if "projectHash" not in session and not any(
        one.get("type") in ("user", "gemini") for one in records
    ):
        return None
    if session.get("kind") == "subagent":
        records = []  # its questions are the main agent's
    return [
        Conversation(
            framework=NAME,
            session_id=word(session.get("sessionId")),
            agent_name=NAME,
            messages=[message for one in records for message in _messages(one)],
        )
    ]


def _records(lines: list[JsonObject]) -> list[JsonObject]:
    """Return the messages that the lines of a file leave."""
    latest: dict[str, JsonObject] = {}
    for line in lines:
        if (replaced := mapping(line.get("$set")).get("messages")) is not None:
            latest = {str(one.get("id")): one for one in objects(replaced)}
        elif "$rewindTo" in line and str(line["$rewindTo"]) in latest:
            kept = [*latest].index(str(line["$rewindTo"]))
            latest = dict([*latest.items()][:kept])
        elif "id" in line and "type" in line:
            latest[str(line["id"])] = line
    return [*latest.values()]


def _messages(record: JsonObject) -> Iterator[Message]:
    kind, now = record.get("type"), time_of(record.get("timestamp"))
    text = text_of(record.get("displayContent")) or text_of(record.get("content"))
    if kind == "user":
        if not _is_left_out(record, text):
            yield Message(role="user", text=text, time_ns=now)
    elif kind == "info" and text == _CANCELLED:
        yield Message(role="assistant", time_ns=now, stopped=True)
    elif kind == "error":
        yield Message(role="assistant", time_ns=now, failure=Failure(None, text))
    elif kind == "gemini":
        used = mapping(record.get("tokens"))
        made = [one for one in objects(record.get("toolCalls")) if isinstance(one.get("name"), str)]
        yield Message(
            role="assistant",
            text=text or (None if made else text),
            time_ns=now,
            calls=tuple(
                Call(one["name"], one.get("args"), word(one.get("id")) or "") for one in made
            ),
            model=word(record.get("model")),
            tokens=tokens(used.get("input"), used.get("output"), used.get("cached")),
        )
        for one in made:
            yield _outcome(one, now)


def _is_left_out(record: JsonObject, text: str | None) -> bool:
    """Return whether a record is no message of the user: a command, or what tools returned."""
    if text is None:
        return any("functionResponse" in one for one in objects(record.get("content")))
    return text.lstrip().startswith((*CONTEXT, *_COMMANDS))


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
        call_id=word(call.get("id")) or "",
        name=call["name"],
        result=value,
        failure=failure,
    )


def _stream(lines: list[JsonObject]) -> Conversation:
    """Read the events of a stream, in which an answer comes in pieces; its end has the use of the run."""
    session, model = None, None
    messages: list[Message] = []
    for event in lines:
        kind, now = event.get("type"), time_of(event.get("timestamp"))
        if kind == "init":
            session, model = (word(event.get(key)) for key in ("session_id", "model"))
        elif kind == "message":
            _add_piece(messages, event, now)
        elif kind == "tool_use" and (name := word(event.get("tool_name"))) is not None:
            call = Call(name, event.get("parameters"), word(event.get("tool_id")) or "")
            messages.append(Message(role="assistant", time_ns=now, calls=(call,)))
        elif kind == "tool_result":
            messages.append(
                Message(
                    role="tool",
                    time_ns=now,
                    call_id=word(event.get("tool_id")) or "",
                    result=value_of(event.get("output")),
                    failure=_failure(event),
                )
            )
        elif kind == "result":
            used = mapping(event.get("stats"))
            messages.append(
                Message(
                    role="assistant",
                    time_ns=now,
                    model=model,
                    tokens=tokens(
                        used.get("input_tokens"), used.get("output_tokens"), used.get("cached")
                    ),
                    failure=_failure(event),
                )
            )
    return Conversation(framework=NAME, session_id=session, agent_name=NAME, messages=messages)


def _add_piece(messages: list[Message], event: JsonObject, now: int) -> None:
    """Add a message, or continue the last one if the event is a piece of it."""
    text, last = word(event.get("content")) or "", messages[-1] if messages else None
    role: Role = "user" if event.get("role") == "user" else "assistant"
    if event.get("delta") and last and last.role == role and not last.calls:
        text, now = f"{messages.pop().text or ''}{text}", now or last.time_ns
    messages.append(Message(role=role, text=text, time_ns=now))


def _failure(event: JsonObject) -> Failure | None:
    if event.get("status") != "error":
        return None
    error = mapping(event.get("error"))
    return Failure(word(error.get("type")), word(error.get("message")))
