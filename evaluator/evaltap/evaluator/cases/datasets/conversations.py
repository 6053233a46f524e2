"""Convert chat messages to turns: each user message with the agent's actions until the next one."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, Protocol

from evaltap.schemas.chat.evidence import Evidence
from evaltap.schemas.chat.messages import Answer, Message, Text, with_answers_apart
from evaltap.schemas.chat.shapes import MARKS, REASONING, read_message, read_part, steps
from evaltap.schemas.data import Json, json_bytes
from evaltap.schemas.errors import FormatError
from evaltap.schemas.text import begins_as_error

Fields = dict[str, Json]

_CALLS: Final = ("tools_called", "toolsCalled", "tool_calls")
_SAID: Final = (*_CALLS, "content", "function_call", "refusal")
_SILENT: Final = (*REASONING, *MARKS, "redacted_thinking")
"""Parts without content, like those of the AI SDK whose types begin with `data-`."""


class Cells(Protocol):
    """Reads the values of a row, and knows their position."""

    def parsed(self, value: Json) -> Json:
        """Return JSON text as its value, and others as JSON data."""

    def tools(self, value: Json) -> list[Fields]:
        """Return tool calls."""
        ...

    def wrong(self, what: str, found: Json, expected: str) -> FormatError:
        """Return the error for a value."""
        ...


def is_chat(said: Json) -> bool:
    """Return whether a value is a list of messages, or of items of the Responses API."""
    return isinstance(said, list) and bool(said) and all(map(_is_message, said))


def _is_message(one: Json) -> bool:
    is_named = isinstance(one, Mapping) and ("role" in one or "type" in one)
    return is_named and read_message(one, "") is not None


def is_user(message: Mapping[str, Json]) -> bool:
    """Return whether a message is the user's."""
    return message.get("role", message.get("type")) in ("user", "human")


def whole_chat(asked: list[Json], said: list[Json]) -> list[Json]:
    """Return a conversation; what is said may repeat what was asked."""
    return said if any(map(is_user, said)) else [*asked, *said]


def messages_of(value: Json) -> Json:
    """Return the messages in an output: of a state, a chat completion or a response of OpenAI."""
    if not isinstance(value, Mapping):
        return value
    choices = value.get("choices")
    if isinstance(choices, list) and choices and isinstance(choices[0], Mapping):
        return [choices[0].get("message")]
    found = value.get("messages", value.get("output"))
    return [found] if isinstance(found, Mapping) and "content" in found else found


def since_user(said: list[Json]) -> list[Json]:
    """Return the messages after the last one of the user."""
    return said[max((n for n, one in enumerate(said, 1) if is_user(one)), default=0) :]


def read_turns(value: Json, cells: Cells) -> list[Fields]:
    """Return the turns of a conversation; raise FormatError for anything else."""
    value = cells.parsed(value)
    if not isinstance(value, list) or not value:
        raise cells.wrong("messages", value, "a list of messages")
    turns: list[Fields] = []
    before: list[Fields] = []
    for given in (step for one in value for step in _steps(one)):
        for message in with_answers_apart((spoken(given, cells),)):
            _add(turns, before, message, given, cells)
            if message.role == "assistant":
                given = _without_calls(given)
    if not turns:
        raise cells.wrong("messages", value, "at least one message of the user")
    _mark_silent(turns)
    return [{"invocationId": f"t-{n}", **turn} for n, turn in enumerate(turns, start=1)]


def _steps(one: Json) -> Sequence[Json]:
    """Return the steps of a message; a thought that is an item of its own is none."""
    given = [*steps(one)] if isinstance(one, Mapping) else [one]
    return [
        one for one in given if not isinstance(one, Mapping) or one.get("type") not in REASONING
    ]


def _mark_silent(turns: Sequence[Fields]) -> None:
    """Mark the turns that lack an answer, if others have one."""
    silent = [turn for turn in turns if "finalResponse" not in turn]
    for turn in silent if len(silent) < len(turns) else ():
        turn.setdefault("capture", {})["finalResponse"] = "missing"


def mark_open_tools(turns: Sequence[Fields], messages: Sequence[Json]) -> None:
    """Mark the turns of an export of evaltap that do not specify which tools are called."""
    specified = set()
    number = -1
    for one in messages:
        number += is_user(one)
        if any(one.get(name) is not None for name in _CALLS):
            specified.add(number)
    for number, turn in enumerate(turns):
        if number not in specified:
            turn.setdefault("capture", {})["tools"] = "missing"


def spoken(given: Json, cells: Cells) -> Message:
    """Return a message without the calls in its fields; raise FormatError for anything else."""
    message = read_message(_without_calls(given), "") if isinstance(given, Mapping) else None
    if message is not None and (message.role or message.answers):
        is_empty = "parts" in given and not _has_unknown(given)
        if message.parts or is_empty or any(name in given for name in _SAID):
            return message
    raise cells.wrong("a message", given, "an object with `role` and `content`")
    return message


def fields_of(message: Message, given: Mapping[str, Json]) -> Fields:
    """Return a message's role and text."""
    content = given.get("content")
    results = message.answers if message.role == "tool" else []
    texts = [text_of(message.parts), *(_result_text(one.result) for one in results)]
    if not message.parts and not isinstance(content, list):
        texts = [content_text(content)]
    return {"role": message.role, "content": "".join(texts)}


def text_of(parts: Sequence[object]) -> str:
    """Return the text of a message's parts."""
    return "".join(part.content or "" for part in parts if isinstance(part, Text))


def _without_calls(given: Mapping[str, Json]) -> Fields:
    return {key: given[key] for key in given if key not in _CALLS}


def _has_unknown(given: Mapping[str, Json]) -> bool:
    """Return whether a message has a part whose form is not known."""
    body = given.get("parts", given.get("content"))
    body = body.get("parts") if isinstance(body, Mapping) else body
    parts = [one for one in body if isinstance(one, Mapping)] if isinstance(body, list) else []
    unread = [one for one in parts if read_part(one) is None and "reasoningContent" not in one]
    kinds = (str(one.get("type")) for one in unread)
    return any(kind not in _SILENT and not kind.startswith("data-") for kind in kinds)


def _result_text(result: Evidence | None) -> str:
    return content_text(result.value) if result is not None else ""


def content_text(value: Json) -> str:
    """Return a content or a result as text: of its blocks, or JSON."""
    if isinstance(value, list):
        blocks = [
            Text(content_text(one["json"]))
            if isinstance(one, Mapping) and "json" in one
            else read_part(one)
            for one in value
        ]
        if any(blocks) or not blocks:
            return text_of(blocks)
    if value is None or isinstance(value, str):
        return value or ""
    return json_bytes(value).decode()


def _add(
    turns: list[Fields], before: list[Fields], message: Message, given: Fields, cells: Cells
) -> None:
    """Add what a message says, calls or returns to its turn; before the first one, it is context."""
    role, answers = message.role, message.answers
    if role == "tool" and not answers:
        answers = [Answer(None, None, message.text)]
    if answers:
        _add_results(turns, before, answers, given)
        message = Message(role, tuple(one for one in message.parts if not isinstance(one, Answer)))
        if role == "tool" or not (message.parts or _has_unknown(given)):
            return
    said = fields_of(message, given)
    if role == "user":
        turns.append({"userContent": said})
        if before:
            turns[-1]["contextMessages"] = [*before]
            before.clear()
        _mark(turns[-1], "userContent", message, given)
    elif role == "system" or not turns:
        before.append(said)
    elif role == "assistant":
        _add_answer(turns[-1], message, said, given, cells)
    else:
        expected = "system, developer, user, assistant or tool"
        raise cells.wrong("the role of a message", role, expected)


def _mark(turn: Fields, name: str, message: Message, given: Mapping[str, Json]) -> None:
    """Mark a message whose text is withheld, or whose images, audio or files were omitted."""
    flaw = message.text.flaw if message.text is not None else None
    if flaw is not None:
        turn.setdefault("capture", {})[name] = flaw
    if message.media or _has_unknown(given):
        turn.setdefault("capture", {})[f"{name}.contentParts"] = "truncated"


def _add_answer(
    turn: Fields, message: Message, said: Fields, given: Mapping[str, Json], cells: Cells
) -> None:
    """Add the agent's text or tool calls; its last text becomes the answer."""
    if tools := _tools(message, given, cells):
        turn.setdefault("tools", []).extend(tools)
    is_answer = message.text is not None or ("content" in given and not message.parts)
    if said["content"] or (is_answer and not tools):
        if (earlier := turn.get("finalResponse")) is not None:
            turn.setdefault("intermediateResponses", []).append(earlier)
        turn["finalResponse"] = said
        turn.get("capture", {}).pop("finalResponse", None)
        _mark(turn, "finalResponse", message, given)


def _tools(message: Message, given: Mapping[str, Json], cells: Cells) -> list[Fields]:
    """Return the calls in a message's parts, and those in its fields that are not among them."""
    known = [call.call_id for call in message.calls if call.call_id]
    stated: Json = next((given[name] for name in _CALLS if given.get(name)), [])
    tools = [one for one in cells.tools(stated) if one.get("id") not in known]
    for call in message.calls:
        value, flaw = (
            (call.arguments.value, call.arguments.flaw) if call.arguments else (None, None)
        )
        (tool,) = cells.tools([{"id": call.call_id, "name": call.name, "arguments": value}])
        tools.append({**tool, "capture": {"arguments": flaw}} if flaw else tool)
    return tools


def _add_results(
    turns: Sequence[Fields], before: list[Fields], answers: Iterable[Answer], given: Fields
) -> None:
    for answer in answers:
        if turns:
            _add_result(turns[-1], answer, given)
        else:
            before.append({"role": "tool", "content": _result_text(answer.result)})


def _waiting(turn: Fields, answer: Answer) -> Fields | None:
    """Return the call that a result belongs to: that with its id, or the first without a result."""
    waiting: Sequence[Fields] = [tool for tool in turn.get("tools", ()) if "result" not in tool]
    named = [tool for tool in waiting if answer.call_id and tool.get("id") == answer.call_id]
    alike = [tool for tool in waiting if answer.name in (None, tool["name"])]
    return next(iter(named or alike), None)


def _add_result(turn: Fields, answer: Answer, given: Mapping[str, Json]) -> None:
    tool = _waiting(turn, answer)
    if tool is None:
        turn["capture"] = {**turn.get("capture", {}), "tools": "ambiguous"}
        return
    tool["result"] = result = _result_text(answer.result)
    if answer.result is not None and answer.result.flaw:
        tool.setdefault("capture", {})["result"] = answer.result.flaw
    stated = given.get("error")
    if isinstance(stated, Mapping):
        tool["error"] = {
            name: str(stated[name]) for name in ("type", "message") if stated.get(name)
        }
    elif answer.failed or begins_as_error(result):
        tool["error"] = {"message": result}
