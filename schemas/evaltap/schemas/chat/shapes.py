"""Messages in the formats of frameworks and providers, read into one shape.

Supported, recognized by the data and not by its producer: OpenTelemetry GenAI parts, OpenAI chat
and responses items, Google GenAI contents, Anthropic and Bedrock content blocks, LangChain messages
(flat, `data` envelope, serialized constructor), AI SDK parts, and messages of Haystack, LlamaIndex,
Cursor and ShareGPT.
"""

import ast
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from evaltap.schemas.chat.evidence import Evidence, decode, without_block
from evaltap.schemas.chat.media import BLOCKS, TYPES, WITHHELD, media_in
from evaltap.schemas.chat.messages import Answer, Call, Message, Part, Reasoning, Text, text_part


def read_messages(value: object, *, role: str = "user") -> tuple[Message, ...]:
    """Read one message or a list of them from decoded JSON; skip what is not a message."""
    if isinstance(value, str):
        return (Message(role, (text_part(value),)),)
    if isinstance(value, Mapping):
        message = read_message(value, role)
        return (message,) if message is not None else ()
    if not isinstance(value, list | tuple):
        return ()
    if are_parts(value):
        return (Message(role, _parts(value)),)
    return tuple(each_message(value, role))


def are_parts(items: Sequence[object]) -> bool:
    """Return whether a list has the parts of one message."""
    return bool(items) and all(map(_is_part, items))


def each_message(items: Iterable[object], role: str) -> Iterator[Message]:
    """Yield the messages of a list, which may hold lists of them."""
    for item in items:
        if isinstance(item, list | tuple):
            yield from read_messages(item, role=role)
        elif type(item) is dict or isinstance(item, Mapping):
            message = read_message(item, role)
            if message is not None:
                yield message


def steps(message: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    """Yield a message of the AI SDK's user interface as what was said, called and returned; others whole."""
    if not _ENVELOPES.isdisjoint(message) and (inner := _envelope(message, "user")) is not None:
        yield from steps(inner)
        return
    held = message.get("content")
    parts = (held if isinstance(held, Mapping) else message).get("parts")  # Mastra: in `content`
    if not parts and (called := _listed(message.get("toolInvocations"))):
        parts = [*called, {"type": "text", "text": held}]
    said: list[object] = []
    role = message.get("role")
    calls = [_ui_call(part) for part in _listed(parts)]
    if not any(calls):
        yield message
        return
    for part, call in zip(_listed(parts), calls, strict=True):
        if call is None:
            is_mark = isinstance(part, Mapping) and part.get("type") in MARKS
            said += [] if is_mark else [part]
            continue
        if said:
            yield {"role": role, "content": said}
            said = []
        yield {"role": "assistant", "parts": [{**call, "type": "tool-call"}]}
        error = call.get("errorText")
        if error is not None or "output" in call or "result" in call:
            failed = {"result": error, "isError": True} if error is not None else {}
            yield {"role": "tool", "parts": [{**call, "type": "tool-result", **failed}]}
    if said:
        yield {"role": role, "content": said}


MARKS = ("source-document", "source-url", "step-start")
"""Parts of the AI SDK's messages that say nothing."""


def _ui_call(part: object) -> Mapping[str, object] | None:
    """Return the call, maybe with its result, in a part of the AI SDK's user interface."""
    if not isinstance(part, Mapping):
        return None
    inner = part.get("toolInvocation")
    call = inner if isinstance(inner, Mapping) else part
    kind = str(part.get("type"))
    if "toolCallId" not in call or (kind in _TYPED and "toolName" in call):
        return None
    return {**call, "toolName": call.get("toolName") or kind.removeprefix("tool-")}


_ROLES = {
    "human": "user",
    "ai": "assistant",
    "bot": "assistant",
    "gpt": "assistant",
    "model": "assistant",
    "observation": "tool",
    "function": "tool",
    "developer": "system",
    "HumanMessage": "user",
    "AIMessage": "assistant",
    "AIMessageChunk": "assistant",
    "SystemMessage": "system",
    "ToolMessage": "tool",
}

_PART_MESSAGES = ("function_call", "function_call_output", "tool_call", "tool_call_response")


def read_message(item: Mapping[str, object], role: str) -> Message | None:
    """Return a message, spoken by `role` if it does not say by whom; None for anything else."""
    if not _ENVELOPES.isdisjoint(item) and (inner := _envelope(item, role)) is not None:
        return read_message(inner, role)
    given = _string(item.get("role"))
    if kind := _string(item.get("type")):
        if kind in REASONING:
            thought = _reasoning_part(item)
            return Message("assistant", (thought,)) if thought is not None else None
        if kind in _PART_MESSAGES or kind in HOSTED_CALLS:
            parts = _parts([item])
            spoken = "assistant" if parts and isinstance(parts[0], Call) else "tool"
            return Message(spoken, parts) if parts else None
        if given is None and (kind in _ROLES or kind in ("tool", "system")):
            given = kind
    if given is None and not any(key in item for key in ("content", "parts", "tool_calls")):
        return None
    speaker = _ROLES.get(given, given) if given is not None else role
    if speaker == "tool" and ("parts" not in item or "tool_call_id" in item):
        return Message("tool", _tool_message(item))
    return Message(speaker, _spoken_parts(item))


_ENVELOPES = frozenset(("blocks", "data", "from", "kwargs", "message", "value"))
_BLOCK_KEYS = {
    "block_type": "type",
    "tool_call_id": "call_id",
    "tool_name": "name",
    "tool_kwargs": "arguments",
}
"""Keys of LlamaIndex's blocks."""


def _envelope(item: Mapping[str, object], role: str) -> Mapping[str, object] | None:
    """Return the message inside an envelope of LangChain, LlamaIndex or ShareGPT, or below `message`."""
    kwargs, data, message = (item.get(key) for key in ("kwargs", "data", "message"))
    if item.get("lc") and isinstance(kwargs, Mapping):
        names = _listed(item.get("id"))
        return {"role": _ROLES.get(str(names[-1]) if names else "", role), **kwargs}
    if isinstance(data, Mapping) and "role" not in item and "type" in item:
        return {"type": item["type"], **data}
    if isinstance(message, Mapping) and "role" not in item:
        return message
    is_bare = "content" not in item and "parts" not in item
    if isinstance(message, Mapping) and is_bare:  # Cursor
        return {**message, "role": item["role"]}
    if blocks := [one for one in _mappings(item.get("blocks")) if "block_type" in one]:
        content = [{_BLOCK_KEYS.get(key, key): one[key] for key in one} for one in blocks]
        extra = item.get("additional_kwargs")
        whole = {**(extra if isinstance(extra, Mapping) else {}), **item, "content": content}
        return {key: whole[key] for key in whole if key != "blocks"}
    speaker = _string(item.get("role") or item.get("from"))
    if speaker and "value" in item and is_bare:
        rest = {key: item[key] for key in item if key != "value"}
        if speaker != "function_call":
            return {**rest, "role": speaker, "content": item["value"]}
        asked = decode(item["value"]).value
        calls = asked if isinstance(asked, list) else [asked]
        return {**rest, "role": "assistant", "tool_calls": calls}
    return {**item, "role": speaker} if speaker and "role" not in item else None


def _spoken_parts(item: Mapping[str, object]) -> tuple[Part, ...]:
    body = item.get("parts", item.get("content"))
    if body is None:
        body = item.get("refusal")
    parts = _parts(body) if body is not None else ()
    calls = () if _CALLS.isdisjoint(item) else _calls(item)
    if not calls:
        return parts
    seen = {part.call_id for part in parts if isinstance(part, Call) and part.call_id}
    extra = tuple(call for call in calls if call.call_id is None or call.call_id not in seen)
    if extra:
        # Next to tool calls, an empty text is only a placeholder.
        parts = tuple(part for part in parts if not isinstance(part, Text) or part.content)
    return parts + extra


_CALLS = frozenset(("tool_calls", "additional_kwargs", "function_call", "invalid_tool_calls"))


def _tool_message(item: Mapping[str, object]) -> tuple[Part, ...]:
    content = item.get("content", item.get("parts"))
    last = content[-1] if isinstance(content, list) and content else None
    if type(last) is dict and "text" not in last:
        parts = _parts(content)
        if any(isinstance(part, Answer) for part in parts):
            return parts
    answer = Answer(
        _string(item.get("tool_call_id") or item.get("toolCallId") or item.get("id")),
        _string(item.get("name")),
        _answer_value(content) if "content" in item or "parts" in item else None,
        item.get("status") == "error" or item.get("is_error") is True,
    )
    return (answer,)


def _calls(item: Mapping[str, object]) -> tuple[Call, ...]:
    calls: list[Call] = []
    for call in _listed(_requested_calls(item)):
        if isinstance(call, Mapping):
            function = call.get("function") or call.get("custom")
            source = function if isinstance(function, Mapping) else call
            calls.append(
                Call(
                    _string(call.get("id") or call.get("call_id")),
                    _string(source.get("name")),
                    _arguments(source),
                )
            )
    return tuple(calls)


def _requested_calls(item: Mapping[str, object]) -> object:
    """Return the calls of a message; LangChain keeps malformed ones apart, or shows only the raw ones."""
    calls, malformed = item.get("tool_calls"), _listed(item.get("invalid_tool_calls"))
    if malformed:
        return [*_listed(calls), *malformed]
    if calls:
        return calls
    if isinstance(called := item.get("function_call"), Mapping):
        return [called]
    extra = item.get("additional_kwargs")
    return _requested_calls(extra) if isinstance(extra, Mapping) else None


def _parts(body: object) -> tuple[Part, ...]:
    if isinstance(body, str):
        return (text_part(body),)
    if isinstance(body, list | tuple):
        found = ((read_part(item), _hosted_result(item)) for item in body)
        return tuple([part for both in found for part in both if part is not None])
    if not isinstance(body, Mapping):
        return ()
    return _parts(body["parts"] if isinstance(body.get("parts"), list) else [body])


def _is_part(item: object) -> bool:
    if not isinstance(item, Mapping) or "role" in item or "data" in item:
        return False
    kind = _string(item.get("type")) or ""
    is_known = _reader(kind) is not None and kind not in REASONING
    return is_known or bool(_BLOCKS.keys() & item.keys())


def _reader(kind: str) -> Callable[[Mapping[str, object]], Part | None] | None:
    """Return the function that reads parts of a type; None for an unknown type."""
    return _TYPED.get(kind) or (_answer_part if kind.endswith("_tool_result") else None)


def read_part(item: object) -> Part | None:
    """Return a part of a message; None if it is unknown or says nothing."""
    if isinstance(item, str):
        return text_part(item)
    if type(item) is not dict and not isinstance(item, Mapping):
        return None
    if item.get("thought") is True:
        return _reasoning_part(item)
    if (reader := _reader(_string(item.get("type")) or "")) is not None:
        return reader(item)
    if "type" in item and "text" not in item:
        return None
    for key, read in _BLOCKS.items():
        if item.get(key) is not None:
            return read(item)
    return None


def _mappings(value: object) -> list[Mapping[str, object]]:
    return [one for one in _listed(value) if isinstance(one, Mapping)]


def _listed(value: object) -> Sequence[object]:
    """Return the value if it is a list, otherwise an empty sequence."""
    return value if isinstance(value, list | tuple) else ()


def _text_part(item: Mapping[str, object]) -> Part | None:
    value = item.get("content", item.get("text"))
    if isinstance(value, str):
        return (value.startswith(_CALL_REPR) and _call_in_repr(value)) or text_part(value)
    if value is None:
        return Text(None)
    said = value.get("value") if isinstance(value, Mapping) else None  # in a thread of OpenAI's
    written = json.dumps(value, ensure_ascii=False)
    return text_part(said if isinstance(said, str) else written)


_CALL_REPR = "ResponseFunctionToolCall("


def _call_in_repr(text: str) -> Call | None:
    """Return the call that an instrumentation of OpenAI Agents writes as Python's representation."""
    try:
        node = ast.parse(text, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
    if not isinstance(node, ast.Call):
        return None
    given = {
        one.arg: one.value.value for one in node.keywords if isinstance(one.value, ast.Constant)
    }
    arguments = given.get("arguments")
    return Call(
        _string(given.get("call_id")),
        _string(given.get("name")),
        decode(arguments) if isinstance(arguments, str) else None,
    )


def _reasoning_part(item: Mapping[str, object]) -> Reasoning | None:
    """Read reasoning: plain text, or an item of the Responses API with a summary."""
    body = next(
        (item[key] for key in ("content", "thinking", "reasoning", "text") if item.get(key)), None
    )
    blocks = body if isinstance(body, list) else item.get("summary") if body is None else None
    found = (block.get("text") for block in _listed(blocks) if isinstance(block, Mapping))
    text = (
        body if isinstance(body, str) else "\n".join(one for one in found if isinstance(one, str))
    )
    return Reasoning(text) if text and text not in WITHHELD else None


def _call_part(item: Mapping[str, object]) -> Part | None:
    if isinstance(nested := item.get("content"), Mapping):  # in Azure's telemetry
        function = nested.get("function")
        held = {**nested, **(function if isinstance(function, Mapping) else {})}
        return (_TYPED.get(_string(nested.get("type")) or "") or _call_part)(held)
    call_id = (
        item.get("call_id") or item.get("toolCallId") or item.get("toolUseId") or item.get("id")
    )
    name = item.get("name") or item.get("toolName") or item.get("tool_name")
    return Call(_string(call_id), _string(name), _arguments(item))


def _hosted_call(item: Mapping[str, object]) -> Part:
    """Read a tool call that the Responses API executed itself."""
    kind = _string(item.get("type")) or ""
    shown = {key: item[key] for key in ("queries", "action", "code") if item.get(key) is not None}
    given = _first(item, "arguments") or (Evidence(shown) if shown else None)
    name = _string(item.get("name")) or kind.removesuffix("_call")
    return Call(_string(item.get("id")), name, given, hosted=True)


def _hosted_result(item: object) -> Answer | None:
    """Return the result that a call which the Responses API executed itself has in its own item."""
    if not isinstance(item, Mapping) or item.get("type") not in HOSTED_CALLS:
        return None
    given = (item.get(key) for key in ("output", "outputs", "results", "error"))
    value = next((one for one in given if one is not None), None)
    failed = item.get("error") is not None or item.get("status") == "failed"
    if value is None and not failed:
        return None
    return Answer(_string(item.get("id")), None, _answer_value(value), failed)


def _server_call(item: Mapping[str, object]) -> Part:
    """Read a call of Anthropic's that the API executed itself; its result is a block of the same message."""
    return Call(
        _string(item.get("id")), _string(item.get("name")), _first(item, "input"), hosted=True
    )


REASONING = ("reasoning", "thinking")
_SERVER_CALLS = ("mcp_tool_use", "server_tool_use")
"""Blocks of Anthropic's messages; blocks of results are named after the tool: `web_search_tool_result`."""
HOSTED_CALLS = (
    "code_interpreter_call",
    "computer_call",
    "file_search_call",
    "image_generation_call",
    "local_shell_call",
    "mcp_call",
    "web_search_call",
)
"""Output items of OpenAI's Responses API: tools that run at the provider."""


_CALL_IDS: Final = ("call_id", "tool_call_id", "tool_use_id", "toolCallId", "toolUseId", "id")


def _answer_part(item: Mapping[str, object]) -> Part:
    nested = item.get("content")
    if item.get("type") == "tool_call_output" and isinstance(nested, Mapping):
        item = nested
    call_id = next(filter(None, map(item.get, _CALL_IDS)), None)
    value = next(
        (item[key] for key in ("response", "result", "output", "content") if key in item), _ABSENT
    )
    failed = (
        item.get("is_error") is True
        or item.get("isError") is True
        or item.get("status") == "error"
        or is_error(value)
    )
    result = None if value is _ABSENT else _answer_value(value)
    name = item.get("name") or item.get("toolName") or item.get("tool_name")
    return Answer(_string(call_id), _string(name), result, failed)


def is_error(value: object) -> bool:
    """Return whether a result is an error of MCP, of Anthropic (`…_tool_result_error`) or of the AI SDK."""
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("content"), list) and True in (
        value.get("isError"),
        value.get("is_error"),
    ):
        return True
    kind = value.get("type")
    if not isinstance(kind, str):
        return False
    is_ai_sdk = value.keys() <= {"type", "value"} and kind.startswith(_AI_SDK_ERRORS)
    return is_ai_sdk or kind.endswith("_tool_result_error")


_AI_SDK_ERRORS = ("error-", "execution-denied")


def _haystack_answer(item: Mapping[str, object]) -> Part | None:
    held = item["tool_call_result"]
    if not isinstance(held, Mapping):
        return None
    origin = held.get("origin")
    known = origin if isinstance(origin, Mapping) else {}
    return _answer_part({**known, **held, "is_error": bool(held.get("error"))})


_ABSENT = object()
_TYPED: dict[str, Callable[[Mapping[str, object]], Part | None]] = {
    "text": _text_part,
    "input_text": _text_part,
    "output_text": _text_part,
    "refusal": lambda item: _text_part({"text": item.get("refusal")}),
    "tool_call": _call_part,
    "function_call": _call_part,
    "tool_use": _call_part,
    "tool-call": _call_part,
    "server_tool_call": _call_part,
    "tool_call_response": _answer_part,
    "tool_call_output": _answer_part,
    "function_call_output": _answer_part,
    "tool_result": _answer_part,
    "tool-result": _answer_part,
    "server_tool_call_response": _answer_part,
    **dict.fromkeys(HOSTED_CALLS, _hosted_call),
    **dict.fromkeys(_SERVER_CALLS, _server_call),
    **dict.fromkeys(TYPES, media_in),
    **dict.fromkeys(REASONING, _reasoning_part),
}
_BLOCKS: dict[str, Callable[[Mapping[str, object]], Part | None]] = {
    "text": _text_part,
    "function_call": lambda item: _inside(_call_part, item["function_call"]),
    "functionCall": lambda item: _inside(_call_part, item["functionCall"]),
    "toolUse": lambda item: _inside(_call_part, item["toolUse"]),
    "function_response": lambda item: _inside(_answer_part, item["function_response"]),
    "functionResponse": lambda item: _inside(_answer_part, item["functionResponse"]),
    "toolResult": lambda item: _inside(_answer_part, item["toolResult"]),
    **dict.fromkeys(BLOCKS, media_in),
    "tool_call": lambda item: _inside(_call_part, item["tool_call"]),
    "tool_call_result": _haystack_answer,
}


def _inside(read: Callable[[Mapping[str, object]], Part | None], block: object) -> Part | None:
    return read(block) if isinstance(block, Mapping) else None


def _first(item: Mapping[str, object], *keys: str) -> Evidence | None:
    for key in keys:
        if key in item:
            return decode(item[key]) if item[key] is not None else Evidence(None)
    return None


def _arguments(item: Mapping[str, object]) -> Evidence | None:
    """Return the arguments of a call; some providers write none as an empty text."""
    given = _first(item, "arguments", "args", "input")
    is_blank = given is not None and isinstance(given.value, str) and not given.value.strip()
    return Evidence({}) if is_blank else given


def _answer_value(value: object) -> Evidence:
    """Unwrap a single text block or part and `{"type": "text", "value": x}` of tool results."""
    value = without_block(value)
    if isinstance(value, str):
        return Evidence(None, "redacted") if value in WITHHELD else Evidence(value)
    if isinstance(value, list) and len(value) == 1 and isinstance(value[0], Mapping):
        block = value[0]
        if set(block) == {"type", "content"} and block["type"] == "text":
            return Evidence(block["content"])
        if set(block) == {"json"}:
            return Evidence(block["json"])
    if isinstance(value, Mapping) and set(value) == {"type", "value"}:
        return Evidence(value["value"])
    return Evidence(value)


def _string(value: object) -> str | None:
    return value if isinstance(value, str) and value else None
