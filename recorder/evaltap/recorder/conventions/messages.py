"""Conversations in telemetry: of requests and responses, repeated by each model call; queries on them."""

from collections.abc import Iterable, Mapping, Sequence

import orjson

from evaltap.schemas.chat.evidence import Evidence, Flaw, decode, is_deep
from evaltap.schemas.chat.messages import Message
from evaltap.schemas.chat.shapes import are_parts, each_message, read_messages


def read_request(value: object) -> tuple[Message, ...]:
    """Read a request to a provider's API: its messages, contents or input."""
    if isinstance(value, Mapping):
        value = next(
            (value[key] for key in ("messages", "contents", "input") if key in value), None
        )
    return read_messages(value)


def read_response(value: object) -> tuple[Message, ...]:
    """Read a response of a provider's API: its choices, candidates, output items or content.

    A streamed response may be a list of its own (openai-agents).
    """
    if isinstance(value, list) and len(value) == 1 and _is_response(value[0]):
        value = value[0]
    if isinstance(value, Mapping):
        listed = (value.get(key) for key in ("choices", "candidates", "output"))
        items = next((items for items in listed if isinstance(items, list)), None)
        value = value if items is None else _first_choice(items)
    if isinstance(value, Mapping) and isinstance(value.get("content"), Mapping):
        value = value["content"]
    return read_messages(value, role="assistant")


def _first_choice(items: list[object]) -> list[object]:
    """Return the items with the index of the first one: of alternatives, an agent goes on with the first."""
    indexes = [one.get("index") if isinstance(one, Mapping) else None for one in items]
    return [one for one, index in zip(items, indexes, strict=True) if index == indexes[0]]


def read_generations(value: object) -> tuple[Message, ...]:
    """Read the first of LangChain's generations: its message, or its text."""
    found = value.get("generations") if isinstance(value, Mapping) else None
    while isinstance(found, list) and found:
        found = found[0]
    if not isinstance(found, Mapping):
        return ()
    if isinstance(found.get("message"), Mapping):
        return read_messages([found["message"]], role="assistant")
    return read_messages([{"role": "assistant", "content": found.get("text")}])


def _is_response(value: object) -> bool:
    return isinstance(value, Mapping) and isinstance(value.get("output"), list)


def decode_messages(
    value: object, *, role: str = "user"
) -> tuple[tuple[Message, ...] | None, Flaw | None]:
    """Decode and read messages; `(None, flaw)` when the value is absent or unusable."""
    if value is None:
        return None, None
    if isinstance(value, str) and (messages := _conversation(value, role)) is not None:
        return messages or None, None
    evidence = decode(value)
    if evidence.flaw:
        return None, evidence.flaw
    return read_messages(evidence.value, role=role) or None, None


_LONGEST_REMEMBERED = 1 << 20
_NOTHING: tuple[str, tuple[Message, ...]] = ("[", ())
_latest: dict[str, tuple[str, tuple[Message, ...]]] = {}
"""The list read last, by role, up to where another message may follow: the next model call repeats it."""


def _conversation(text: str, role: str) -> tuple[Message, ...] | None:
    """Read the messages of a JSON list, only those that were not read just before; None for another text."""
    if text[:1] != "[" or text[-1:] != "]":
        return None
    known, before = _latest.get(role, _NOTHING)
    if not text.startswith(known):
        known, before = _NOTHING
    added = f"[{text[len(known) :]}"
    try:
        items = orjson.loads(added)
    except orjson.JSONDecodeError:
        return None
    if not items or is_deep(items, added) or (not before and are_parts(items)):
        return None
    messages = (*before, *each_message(items, role))
    if len(text) <= _LONGEST_REMEMBERED:
        _latest[role] = f"{text[:-1]},", messages
    return messages


def events_as_messages(value: object) -> object:
    """Turn a list of `{event.name: gen_ai.user.message, ...}` into messages.

    Other values are returned unchanged.
    """
    items = decode(value).value if isinstance(value, str) else value
    if not isinstance(items, list) or not any(
        isinstance(item, dict) and "event.name" in item for item in items
    ):
        return value
    messages: list[object] = []
    for item in items:
        if isinstance(item, dict):
            body = item.get(_EVENT_BODIES.get(str(item.get("event.name")), ""))
            messages.append(body if isinstance(body, dict) else item)
    return messages


_EVENT_BODIES = {"gen_ai.choice": "message", "gen_ai.unknown": "data"}
"""The key of the message in these events; `gen_ai.unknown` is Logfire's, for items without text."""


def last_user_text(messages: Iterable[Message]) -> Evidence | None:
    """Return the text of the last user message that is not a tool result."""
    last = next(filter(_is_users, reversed(list(messages))), None)
    return last.text if last is not None else None


def context_of(messages: Iterable[Message]) -> list[Evidence]:
    """Return the texts of the system messages."""
    found = (message.text for message in messages if message.role in ("system", "developer"))
    return [text for text in found if text is not None]


def closing_text(messages: Sequence[Message]) -> Evidence | None:
    """Return the assistant's text after the last tool call or tool result, if any."""
    for message in reversed(messages):
        if message.calls or message.answers or message.role in ("user", "tool"):
            return None
        if message.role == "assistant" and message.text is not None:
            return message.text
    return None


def since_user(messages: Sequence[Message]) -> Sequence[Message]:
    """Return the messages after the last user message: this turn's, so far."""
    for index in range(len(messages) - 1, -1, -1):
        if _is_users(messages[index]):
            return messages[index + 1 :]
    return messages


def _is_users(message: Message) -> bool:
    """Return whether the user wrote a message: it has text, or, with content capture off, nothing."""
    return message.role == "user" and (message.text is not None or not message.parts)


def without_fragments(messages: Sequence[Message]) -> Sequence[Message]:
    """Drop the fragments of a streamed answer when the whole answer follows them (ADK)."""
    if len(messages) < 2 or messages[-1].text is None:
        return messages
    pieces = [m.text.value for m in messages[:-1] if m.text is not None and not m.calls]
    if "".join(str(piece or "") for piece in pieces) == messages[-1].text.value:
        return [m for m in messages[:-1] if m.calls] + [messages[-1]]
    return messages
