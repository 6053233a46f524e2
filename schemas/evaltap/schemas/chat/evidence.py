"""A value as telemetry shows it: JSON, JSON text, a Python literal, withheld or truncated."""

import ast
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import orjson

from evaltap.schemas.chat.media import WITHHELD, MediaPart

_MOST_LEVELS = 200

Flaw = Literal["truncated", "redacted"]


@dataclass(slots=True)
class Evidence:
    """A value from telemetry, or why it cannot be used (`flaw`; `value` is then None).

    Nobody changes one. It is not frozen, because a turn has forty, and that would take four times as long.
    """

    value: Any
    flaw: Flaw | None = None
    media: tuple[MediaPart, ...] = ()
    """For a message: its non-text parts."""


def decode(value: Any) -> Evidence:
    """Decode a value that may be JSON text, doubly encoded JSON, a Python literal or plain text.

    Text that starts like JSON and breaks off was cut by an attribute length limit: truncated. JSON
    nested more than 200 levels deep stays text, since eval sets and stores hold 250 levels.
    """
    for _ in range(3):
        if not isinstance(value, str):
            break
        if value in WITHHELD:
            return Evidence(None, "redacted")
        text = value.strip()
        try:
            value = orjson.loads(text)
        except orjson.JSONDecodeError:
            return _decode_leniently(value, text)
        if is_deep(value, text):
            return Evidence(text)
    return Evidence(value)


def decode_words(value: object) -> Evidence:
    """Decode a question or an answer: objects and lists, but `4` and `true` stay text."""
    found = decode(value)
    if not isinstance(found.value, int | float) or not isinstance(value, str):
        return found
    words = value.strip()
    while words.startswith('"'):
        words = json.loads(words)
    return Evidence(words)


def without_block(value: object) -> object:
    """Return the text of a value that is a single text block (MCP, Strands), else the value."""
    value = without_drawn_ids(value)
    block = value[0] if isinstance(value, list) and len(value) == 1 else value
    if not isinstance(block, dict) or "text" not in block:
        return value
    is_block = block["type"] == "text" if "type" in block else block is not value
    return block["text"] if is_block and set(block) <= {"text", "type"} else value


def without_drawn_ids(value: object) -> object:
    """Return content blocks without the random ids of LangChain, in which equal results differ."""
    if type(value) is not list or not any(map(_has_drawn_id, value)):
        return value
    return [
        {key: one for key, one in block.items() if key != "id"} if _has_drawn_id(block) else block
        for block in value
    ]


def _has_drawn_id(block: object) -> bool:
    found = block.get("id") if type(block) is dict else None  # runs no code of the user's
    return type(found) is str and found.startswith("lc_")


def argument_values(call: Mapping[str, object]) -> list[object]:
    """Return the values of a decorated function's `args` and `kwargs`."""
    args, kwargs = call.get("args"), call.get("kwargs")
    named = kwargs.values() if isinstance(kwargs, Mapping) else ()
    return [*(args if isinstance(args, list | tuple) else ()), *named]


def _decode_leniently(raw: str, text: str) -> Evidence:
    """Decode what only Python accepts as JSON (NaN, lone surrogates), or Python literals."""
    if not text.startswith(("{", "[")):
        return Evidence(raw)
    try:
        value = json.loads(text)
        return Evidence(raw if is_deep(value, text) else value)
    except (ValueError, RecursionError):
        pass
    try:
        return Evidence(ast.literal_eval(text))  # Python's parser allows less than 200 levels
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        closed = text.endswith("}" if text[0] == "{" else "]")
        cut = text.startswith(('{"', '[{"', '["', "[[", "{'", "[{'", '[ {"')) and not closed
        return Evidence(None, "truncated") if cut else Evidence(raw)


def is_deep(value: object, text: str) -> bool:
    """Return whether a value read from a text is nested more than `_MOST_LEVELS` deep."""
    if text.count("[") + text.count("{") <= _MOST_LEVELS:
        return False
    level: list[Any] = [value]
    for _ in range(_MOST_LEVELS):
        level = [inner for one in level for inner in _members(one)]
        if not level:
            return False
    return True


def _members(value: object) -> Iterable[object]:
    if isinstance(value, dict):
        return value.values()
    return value if isinstance(value, list) else ()
