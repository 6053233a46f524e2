"""Codex: its rollout files, and the events that `codex exec --json` prints.

Sources: the rollout items of Codex CLI (`RolloutItem`: `session_meta`, `response_item`, `event_msg`,
`turn_context`) as below `~/.codex/sessions`; the older ones, whose lines are the response items themselves;
and the thread events of `codex exec --json`.
"""

import json
import re
from collections.abc import Iterator, Mapping

from evaltap.recorder.observation import Failure
from evaltap.recorder.sources.sessions.messages import (
    Call,
    Conversation,
    Message,
    text_of,
    time_of,
    value_of,
)
from evaltap.recorder.telemetry.flat_spans import mapping, objects
from evaltap.recorder.tokens import Tokens, tokens
from evaltap.schemas.data import JsonObject

NAME = "codex"
_CALLS = ("function_call", "custom_tool_call", "local_shell_call", "tool_search_call")
_HOSTED = ("web_search_call", "image_generation_call")
"""Calls that the provider runs within its answer."""
_STREAMED = {"agent_message", "command_execution", "file_change", "mcp_tool_call"}
_EXIT = re.compile(r"^(?:Exit code:|Process exited with code) (\d+)$", re.MULTILINE)
_RETURNS = ("function_call_output", "custom_tool_call_output", "tool_search_output")
_PREAMBLES = (
    "# AGENTS.md instructions",
    "<INSTRUCTIONS>",
    "<environment_context>",
    "<personality_spec>",
    "<skill>",
    "<subagent_notification>",
    "<turn_aborted>",
    "<user_instructions>",
    "<user_shell_command>",
)
"""How messages begin that Codex writes in the user's name."""
_REQUEST = "## My request for Codex:"
"""What IDE extensions write between the context of the editor and the user's words."""


def conversations(document: object) -> list[Conversation] | None:
    # Programs that call Codex collect the lines in an object.
    lines = objects(document) or objects(mapping(document).get("events"))
    kinds = {line.get("type") for line in lines if isinstance(line.get("type"), str)}
    if {"session_meta"} <= kinds or ({"response_item"} <= kinds and _has_payloads(lines)):
        return [_rollout(lines)]
    if lines and {"id", "timestamp", "instructions"} <= lines[0].keys() and "message" in kinds:
        meta = {"type": "session_meta", "payload": lines[0]}
        items = [{"type": "response_item", "payload": line} for line in lines[1:]]
        return [_rollout([meta, *items])]
    streamed = {str(mapping(line.get("item")).get("type")) for line in lines}
    if "thread.started" in kinds or ("item.completed" in kinds and streamed & _STREAMED):
        return [_stream(lines)]
    return None


def _has_payloads(lines: list[JsonObject]) -> bool:
    return all(isinstance(line.get("payload"), dict) for line in lines)


def _rollout(lines: list[JsonObject]) -> Conversation:
    session, model = None, None
    messages: list[Message] = []
    kinds = {str(_payload(line).get("type")) for line in lines if line.get("type") == "event_msg"}
    used, ends = _Usage(), _ends(lines)
    for line in lines:
        payload, kind = _payload(line), line.get("type")
        if kind == "session_meta":
            # A session that continues another one contains its beginning, too.
            if session is None and "subagent" in mapping(payload.get("source")):
                return Conversation(framework=NAME, messages=())  # its questions are the agent's
            session = session or _word(payload.get("id"))
        elif kind == "turn_context":
            model = _word(payload.get("model"))
        elif kind == "response_item":
            # Only the counts of tokens are model calls, where they are written.
            stated = None if "token_count" in kinds else model
            found = _item(payload, time_of(line.get("timestamp")), stated, ends)
            # Items of the user also have what Codex adds; the events are what was typed.
            messages += [one for one in found if one.role != "user" or "user_message" not in kinds]
        elif kind == "event_msg":
            messages += _event(payload, time_of(line.get("timestamp")), model, used)
    return Conversation(framework=NAME, session_id=session, agent_name=NAME, messages=messages)


def _ends(lines: list[JsonObject]) -> Mapping[str, JsonObject]:
    """Return the events that tell how calls ended, by the id of the call."""
    ends = (one for one in map(_payload, lines) if str(one.get("type")).endswith("_end"))
    return {str(one.get("call_id")): one for one in ends}


def _payload(line: JsonObject) -> JsonObject:
    payload = line.get("payload")
    return payload if isinstance(payload, dict) else {}


def _item(
    item: JsonObject, now: int, model: str | None, ends: Mapping[str, JsonObject]
) -> Iterator[Message]:
    """Yield the messages of an item; `ends` are the events that tell how calls ended, by id."""
    kind = item.get("type")
    call_id = _word(item.get("call_id")) or ""
    if kind == "message":
        text = text_of(item.get("content"))
        if item.get("role") == "user" and not (text or "").lstrip().startswith(_PREAMBLES):
            yield Message(role="user", text=_request(text), time_ns=now)
        elif item.get("role") == "assistant":
            yield Message(role="assistant", text=text, time_ns=now, model=model)
    elif kind in _CALLS or kind in _HOSTED:
        given = item.get("arguments", item.get("input", item.get("action")))
        name = _word(item.get("name")) or str(kind).removesuffix("_call")
        call = Call(name, value_of(given), call_id or _word(item.get("id")) or "")
        yield Message(role="assistant", time_ns=now, calls=(call,), model=model)
        if kind in _HOSTED:
            yield Message(role="tool", time_ns=now, call_id=call.id)
    elif kind in _RETURNS:
        result, failure = _outcome(item.get("output", item.get("tools")))
        end = ends.get(call_id, {})
        yield Message(
            role="tool",
            time_ns=now,
            call_id=call_id,
            result=result,
            failure=failure or _failure(end),
            duration_ms=_milliseconds(end.get("duration")),
        )


def _request(text: str | None) -> str | None:
    """Return what the user typed, without the context that an editor adds before it."""
    return text.rpartition(_REQUEST)[2].strip() if text and _REQUEST in text else text


def _failure(end: JsonObject) -> Failure | None:
    """Return how a call failed, according to the event of its end."""
    result, code = mapping(end.get("result")), end.get("exit_code")
    if "Err" in result:
        return Failure(None, _word(result["Err"]))
    if mapping(result.get("Ok")).get("isError") is True:
        return Failure(None, text_of(mapping(result["Ok"]).get("content")))
    if isinstance(code, int) and code != 0:
        return Failure(f"exit code {code}", _word(end.get("aggregated_output")))
    return Failure(None, _word(end.get("stderr"))) if end.get("success") is False else None


def _milliseconds(duration: object) -> float | None:
    """Return a duration, which Rust writes as seconds and nanoseconds."""
    secs, nanos = (mapping(duration).get(name) for name in ("secs", "nanos"))
    if not isinstance(secs, int) or not isinstance(nanos, int) or not 0 <= secs < 1e9:
        return None
    return secs * 1e3 + nanos / 1e6


def _outcome(output: object) -> tuple[object, Failure | None]:
    """Return a call's output and failure; a command's exit code is in its metadata."""
    blocks = objects(output) or objects([output])
    text = text_of(blocks) if blocks and all("type" in one for one in blocks) else None
    value = value_of(output if text is None else text)
    if isinstance(value, str):
        exited = _EXIT.search(value.partition("\nOutput:")[0])
        code = exited[1] if exited else "0"
        return value, Failure(f"exit code {code}", value) if code != "0" else None
    if not isinstance(value, Mapping):
        return value, None
    code = mapping(value.get("metadata")).get("exit_code")
    if value.get("success") is False or (isinstance(code, int) and code != 0):
        words = text_of(value.get("output")) or text_of(value.get("content"))
        kind = f"exit code {code}" if isinstance(code, int) else None
        return value, Failure(kind, words)
    return value, None


def _event(event: JsonObject, now: int, model: str | None, used: "_Usage") -> Iterator[Message]:
    """Yield what the user typed, the tokens of a model call, and what ended a turn."""
    kind = event.get("type")
    info = event.get("info")
    if kind == "user_message":
        yield Message(role="user", text=_request(_word(event.get("message"))), time_ns=now)
    elif kind == "token_count" and isinstance(info, dict):
        if (counted := used.of_call(info)) is not None:
            yield Message(role="assistant", time_ns=now, model=model, tokens=counted)
    elif kind == "error":
        yield Message(
            role="assistant", time_ns=now, failure=Failure(None, _word(event.get("message")))
        )
    elif kind == "turn_aborted":
        yield Message(role="assistant", time_ns=now, stopped=True)


class _Usage:
    """The tokens of a session so far: an event repeats the counts when nothing was added."""

    def __init__(self) -> None:
        self._total: object = None

    def of_call(self, info: JsonObject) -> Tokens | None:
        """Return the tokens of the last model call; None if the event repeats the one before."""
        total = info.get("total_token_usage")
        if total is not None and total == self._total:
            return None
        self._total = total
        return _tokens(info.get("last_token_usage"))


def _tokens(usage: object) -> Tokens:
    used = usage if isinstance(usage, Mapping) else {}
    return tokens(
        used.get("input_tokens"), used.get("output_tokens"), used.get("cached_input_tokens")
    )


def _stream(lines: list[JsonObject]) -> Conversation:
    """Read the events of `codex exec --json`, which have neither times nor the user's message."""
    session = None
    messages = [Message(role="user")]
    for event in lines:
        kind, item = event.get("type"), event.get("item")
        if kind == "thread.started":
            session = _word(event.get("thread_id"))
        elif kind == "turn.started" and len(messages) > 1:
            messages.append(Message(role="user"))
        elif kind == "item.completed" and isinstance(item, dict):
            messages += _completed(item)
        elif kind == "turn.completed":
            messages.append(Message(role="assistant", tokens=_tokens(event.get("usage"))))
        elif kind in ("turn.failed", "error"):
            error = event.get("error")
            words = error.get("message") if isinstance(error, dict) else event.get("message")
            messages.append(Message(role="assistant", failure=Failure(None, _word(words))))
    return Conversation(framework=NAME, session_id=session, agent_name=NAME, messages=messages)


def _completed(item: JsonObject) -> Iterator[Message]:
    kind, call_id = item.get("type"), _word(item.get("id")) or ""
    failed = item.get("status") == "failed"
    if kind == "agent_message":
        yield Message(role="assistant", text=_word(item.get("text")))
        return
    if kind == "command_execution":
        call = Call("command_execution", {"command": item.get("command")}, call_id)
        code, result = item.get("exit_code"), item.get("aggregated_output")
        kind = f"exit code {code}" if isinstance(code, int) else None
        failure = Failure(kind, _word(result)) if failed or code not in (0, None) else None
    elif kind == "mcp_tool_call":
        call = Call(_word(item.get("tool")) or "mcp_tool_call", item.get("arguments"), call_id)
        error, result = item.get("error"), item.get("result")
        words = _word(mapping(error).get("message"))
        failure = Failure(None, words) if failed or error else None
    elif kind in ("file_change", "web_search"):
        known = {key: item[key] for key in ("changes", "query") if key in item}
        call, result = Call(str(kind), known, call_id), None
        failure = Failure(None, None) if failed else None
    else:
        return
    yield Message(role="assistant", calls=(call,))
    yield Message(role="tool", call_id=call_id, name=call.name, result=result, failure=failure)


def _word(value: object) -> str | None:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False) if isinstance(value, dict) else None
