"""Pydantic AI: message histories, as `all_messages_json` and `ModelMessagesTypeAdapter` write them.

Source: `pydantic_ai.messages` of version 2; in version 1, a call that is refused is a `retry-prompt`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final

from evaltap.recorder.conventions.pydantic_ai import OUTPUT_TOOL
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
from evaltap.recorder.tokens import Tokens, tokens
from evaltap.recorder.traces.stated_texts import as_text
from evaltap.schemas.data import JsonObject

NAME: Final = "pydantic-ai"
_CALLS: Final = ("tool-call", "builtin-tool-call")
_RETURNS: Final = ("tool-return", "builtin-tool-return")


def conversations(document: object) -> list[Conversation] | None:
    listed = mapping(document).get("messages", document)
    messages = objects(listed)
    if not isinstance(listed, list) or not listed or len(messages) != len(listed):
        return None
    if not all(_is_message(one) for one in messages):
        return None
    ids = (word(one.get("conversation_id")) for one in messages)
    return [
        Conversation(
            framework=NAME,
            session_id=next((one for one in ids if one is not None), None),
            messages=[*_messages(messages)],
        )
    ]


def _is_message(message: JsonObject) -> bool:
    parts = message.get("parts")
    kinds = ("part_kind" in mapping(part) for part in parts) if isinstance(parts, list) else [False]
    return message.get("kind") in ("request", "response") and all(kinds)


def _messages(messages: Sequence[JsonObject]) -> Iterator[Message]:
    instructions = None
    for message in messages:
        if message["kind"] == "response":
            yield from _response(message)
            continue
        now = time_of(message.get("timestamp"))
        if message.get("instructions") != instructions:
            instructions = message.get("instructions")
            yield Message(role="system", text=word(instructions), time_ns=now)
        for part in objects(message["parts"]):
            yield from _asked(part, time_of(part.get("timestamp")) or now)


def _asked(part: JsonObject, now: int) -> Iterator[Message]:
    """Yield a part of a request: what was said to the model."""
    kind = part["part_kind"]
    if kind == "system-prompt":
        yield Message(role="system", text=word(part.get("content")), time_ns=now)
    elif kind == "user-prompt":
        yield Message(role="user", text=text_of(part.get("content")), time_ns=now)
    elif kind in _RETURNS or part.get("tool_name"):
        yield from _returned(part, now)


def _returned(part: JsonObject, now: int) -> Iterator[Message]:
    """Yield a tool's result; Pydantic AI's own tools for the output have none."""
    name = word(part.get("tool_name")) or ""
    if _is_output(name):
        return
    result = part.get("content")
    outcome = "retried" if part["part_kind"] == "retry-prompt" else part.get("outcome", "success")
    yield Message(
        role="tool",
        time_ns=now,
        call_id=word(part.get("tool_call_id")) or "",
        name=name,
        result=result,
        failure=None if outcome == "success" else Failure(word(outcome), as_text(result)),
    )


def _response(message: JsonObject) -> Iterator[Message]:
    """Yield what the model said, with the results of the tools that its provider ran."""
    now, usage = time_of(message.get("timestamp")), mapping(message.get("usage"))
    said = Message(
        role="assistant",
        time_ns=now,
        model=word(message.get("model_name")),
        tokens=_tokens(usage),
        cost_usd=usd(usage.get("cost")),
    )
    for part in objects(message["parts"]):
        kind, name = part["part_kind"], word(part.get("tool_name")) or ""
        if kind == "text":
            said = replace(said, text=(said.text or "") + (word(part.get("content")) or ""))
        elif kind in _CALLS and _is_output(name):
            said = replace(said, text=as_text(part.get("args")))
        elif kind in _CALLS:
            given = value_of(part.get("args") or {})
            call = Call(name, given, word(part.get("tool_call_id")) or "")
            said = replace(said, calls=(*said.calls, call))
        elif kind in _RETURNS:
            yield said
            yield from _returned(part, now)
            said = Message(role="assistant", time_ns=now)
    yield said


def _is_output(name: str) -> bool:
    """Return whether a tool is one that structured output is requested with: one for each type."""
    return name == OUTPUT_TOOL or name.startswith(f"{OUTPUT_TOOL}_")


def _tokens(usage: Mapping[str, object]) -> Tokens:
    """Return a response's usage; before version 1, it counted `request_tokens` and `response_tokens`."""
    return tokens(
        usage.get("input_tokens", usage.get("request_tokens")),
        usage.get("output_tokens", usage.get("response_tokens")),
        usage.get("cache_read_tokens"),
        usage.get("cache_write_tokens"),
    )
