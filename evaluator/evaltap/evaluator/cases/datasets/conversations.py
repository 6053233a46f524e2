"""Convert chat messages to turns: each user message with the agent's actions until the next one.

Supports the forms of OpenAI (`tool_calls`, `function_call`, messages of role `tool`), Anthropic (blocks
`tool_use` and `tool_result`), Bedrock's Converse (`toolUse`, `toolResult`), the AI SDK (`tool-call` and
`tool-result`; in its user interface, `parts` or `toolInvocations`), Haystack and ShareGPT (`from`, `value`).
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Protocol

import orjson

from evaltap.schemas.errors import FormatError
from evaltap.schemas.formats.model import Json
from evaltap.schemas.text import begins_as_error

Fields = dict[str, Json]

_SPEAKERS: Final = {
    "bot": "assistant",
    "developer": "system",
    "function": "tool",
    "gpt": "assistant",
    "human": "user",
    "model": "assistant",
    "observation": "tool",
}
_SAID: Final = ("content", "value", "tool_calls", "tools_called", "function_call", "refusal")
_TEXTS: Final = ("text", "input_text", "output_text", "refusal")
_THOUGHTS: Final = ("reasoning", "redacted_thinking", "thinking")
_SERVER_CALLS: Final = ("mcp_tool_use", "server_tool_use")
"""Blocks of calls that Anthropic's API ran itself."""
_MARKS: Final = ("step-start", "source-url", "source-document")
"""Parts of the AI SDK's messages that say nothing."""


class Cells(Protocol):
    """Reads the values of a row, and knows their position."""

    def parsed(self, value: Json) -> Json:
        """Return JSON text as its value."""
        ...

    def plain(self, value: Json, column: str) -> Json:
        """Return a value as JSON data."""
        ...

    def tools(self, value: Json) -> list[Fields]:
        """Return tool calls."""
        ...

    def wrong(self, what: str, found: Json, expected: str) -> FormatError:
        """Return the error for a value."""
        ...


def read_turns(value: Json, cells: Cells) -> list[Fields]:
    """Return the turns of a conversation; raise FormatError for anything else."""
    value = cells.parsed(value)
    if not isinstance(value, list) or not value:
        raise cells.wrong("messages", value, "a list of messages")
    turns: list[Fields] = []
    before: list[Fields] = []
    for given in (part for one in value for step in _steps(one) for part in _apart(step, cells)):
        message = read_message(given, cells)
        role = message["role"]
        if role == "user":
            turns.append({"userContent": message})
            if before:
                turns[-1]["contextMessages"] = before
                before = []
            _mark_parts(turns[-1], "userContent", given)
        elif role == "system" or not turns:
            before.append(message)
        elif role == "assistant":
            _add_answer(turns[-1], message, given, cells)
        elif role == "tool":
            _add_result(turns[-1], given, cells)
        else:
            expected = "system, developer, user, assistant or tool"
            raise cells.wrong("the role of a message", role, expected)
    if not turns:
        raise cells.wrong("messages", value, "at least one message of the user")
    _mark_silent(turns)
    return [{"invocationId": f"t-{n}", **turn} for n, turn in enumerate(turns, start=1)]


def _mark_silent(turns: Sequence[Fields]) -> None:
    """Mark the turns that lack an answer, if others have one."""
    silent = [turn for turn in turns if "finalResponse" not in turn]
    for turn in silent if len(silent) < len(turns) else ():
        turn.setdefault("capture", {})["finalResponse"] = "missing"


def read_message(given: Json, cells: Cells) -> Fields:
    """Return a message's role and text."""
    role = given.get("role") or given.get("from") if isinstance(given, Mapping) else None
    if not isinstance(role, str) or not any(name in given for name in _SAID):
        raise cells.wrong("a message", given, "an object with `role` and `content`")
    content = given.get("content", given.get("value"))
    if isinstance(content, list):
        content = "".join(part_text(part) for part in content)
    if content is None:
        content = given.get("refusal")
    return {"role": _SPEAKERS.get(role, role), "content": "" if content is None else str(content)}


def part_text(part: Json) -> str:
    """Return the text of a part of a message; empty for an image and the like."""
    if isinstance(part, str):
        return part
    found = part.get("text") or part.get("refusal") if isinstance(part, Mapping) else None
    return found if isinstance(found, str) else ""


def _steps(given: Json) -> Iterator[Json]:
    """Yield a message of the AI SDK's user interface as texts, calls and results; others unchanged."""
    if not isinstance(given, Mapping):
        yield given
        return
    held = given.get("content")
    whole = held if isinstance(held, Mapping) else given  # Mastra has the parts in `content`
    parts = whole.get("parts")
    if not parts and isinstance(called := given.get("toolInvocations"), list) and called:
        parts = [*called, {"type": "text", "text": given.get("content")}]
    if not parts or not isinstance(parts, list) or not all(map(_is_ai_sdk, parts)):
        yield given
        return
    said: list[Json] = []
    for part in parts:
        tool = part.get("toolInvocation") or part
        if "toolCallId" not in tool:
            said += [part] if part.get("type") not in _MARKS else []
            continue
        if said:
            yield {"role": given.get("role"), "content": said}
            said = []
        name = tool.get("toolName") or str(part.get("type")).removeprefix("tool-")
        yield {"role": "assistant", "content": [{**tool, "type": "tool-call", "toolName": name}]}
        error = tool.get("errorText")
        if error is not None or "output" in tool or "result" in tool:
            failed = {"result": error, "isError": True} if error is not None else {}
            yield {"role": "tool", "content": [{**tool, "type": "tool-result", **failed}]}
    if said:
        yield {"role": given.get("role"), "content": said}


def _is_ai_sdk(part: Json) -> bool:
    if not isinstance(part, Mapping):
        return False
    kind = str(part.get("type"))
    is_known = kind in (*_MARKS, "file", "reasoning") or (kind == "text" and "text" in part)
    return is_known or "toolCallId" in part or "toolInvocation" in part or kind.startswith("data-")


def _apart(given: Json, cells: Cells) -> Iterator[Json]:
    """Yield a message with its calls as `tool_calls`, preceded by the results that it contains."""
    if not isinstance(given, Mapping):
        yield given
        return
    content, parts = given.get("content"), list[Json]()
    if isinstance(content, list):
        parts = [*map(_block, content)]
        given = {**given, "content": parts}
    results, calls = _blocks(parts, "tool_result"), _blocks(parts, "tool_use")
    if results and calls:  # the provider ran the tools within its answer
        said: list[Json] = []
        for part in parts:
            if part not in results:
                said.append(part)
                continue
            yield from _apart({**given, "content": said}, cells) if said else ()
            yield _returned(part)
            said = []
        yield from _apart({**given, "content": said}, cells) if said else ()
        return
    yield from map(_returned, results)
    others = [one for one in parts if one not in results and one not in calls]
    if calls:
        asked = [
            {"id": one.get("id"), "name": one.get("name"), "arguments": one.get("input")}
            for one in calls
        ]
        yield {**given, "content": others or None, "tool_calls": asked}
    elif isinstance(given.get("function_call"), Mapping):
        yield {**given, "tool_calls": [given["function_call"]]}
    elif given.get("from") == "function_call":
        asked = cells.parsed(given.get("value"))
        yield {"role": "assistant", "tool_calls": asked if isinstance(asked, list) else [asked]}
    elif not results:
        yield given
    elif others:
        yield {**given, "content": others}


def _returned(block: Mapping[str, Json]) -> Json:
    names = {"tool_call_id": "tool_use_id", "content": "content", "is_error": "is_error"}
    return {"role": "tool", **{name: block.get(key) for name, key in names.items()}}


def _blocks(parts: list[Json], kind: str) -> list[Mapping[str, Json]]:
    return [one for one in parts if isinstance(one, Mapping) and one.get("type") == kind]


def _block(part: Json) -> Json:
    """Return calls and results in Anthropic's form for tools of the agent; others are returned unchanged."""
    if not isinstance(part, Mapping):
        return part
    kind = part.get("type")
    if kind in ("tool-call", "tool-result"):
        return _ai_sdk_block(part)
    if kind in _SERVER_CALLS:
        return {**part, "type": "tool_use"}
    if isinstance(kind, str) and kind.endswith("_tool_result"):
        return _server_result(part)
    if "type" in part:
        return part
    if isinstance(call := part.get("toolUse"), Mapping):
        return _use(call.get("toolUseId"), call.get("name"), call.get("input"))
    if isinstance(result := part.get("toolResult"), Mapping):
        found = result.get("content")
        blocks = [
            orjson.dumps(one["json"]).decode()
            if isinstance(one, Mapping) and "json" in one
            else one
            for one in (found if isinstance(found, list) else [found])
        ]
        return _result(result.get("toolUseId"), blocks, result.get("status") == "error")
    if isinstance(call := part.get("tool_call"), Mapping):  # Haystack
        return _use(call.get("id"), call.get("tool_name"), call.get("arguments"))
    if isinstance(result := part.get("tool_call_result"), Mapping):
        origin = result.get("origin")
        call_id = origin.get("id") if isinstance(origin, Mapping) else None
        return _result(call_id, result.get("result"), result.get("error"))
    if "reasoningContent" in part:
        return {"type": "reasoning"}
    return {"type": "text", **part} if isinstance(part.get("text"), str) else part


def _use(call_id: Json, name: Json, given: Json) -> Fields:
    return {"type": "tool_use", "id": call_id, "name": name, "input": given}


def _result(call_id: Json, content: Json, failed: Json) -> Fields:
    return {
        "type": "tool_result",
        "tool_use_id": call_id,
        "content": content,
        "is_error": failed,
    }


def _json_text(value: Json) -> str:
    """Return a text as it is, another value as JSON."""
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _server_result(part: Mapping[str, Json]) -> Json:
    """Return the result of a tool that Anthropic ran."""
    held = part.get("content")
    failed = isinstance(held, Mapping) and str(held.get("type")).endswith("_tool_result_error")
    says = isinstance(held, list) and any(map(part_text, held))
    content = held if says else _json_text(held)
    return _result(part.get("tool_use_id"), content, part.get("is_error") or failed)


def _ai_sdk_block(part: Mapping[str, Json]) -> Json:
    """Return a call or a result; version 5 wraps results, with their kind."""
    if part["type"] == "tool-call":
        return _use(
            part.get("toolCallId"), part.get("toolName"), part.get("input", part.get("args"))
        )
    result = part.get("result", part.get("output"))
    failed = bool(part.get("isError"))
    if isinstance(result, Mapping) and {"type", "value"} >= result.keys() >= {"type"}:
        failed = failed or str(result["type"]).startswith(("error-", "execution-denied"))
        result = result.get("value")
    return _result(part.get("toolCallId"), _json_text(result), failed)


def _mark_parts(turn: Fields, message: str, given: Mapping[str, Json]) -> None:
    """Mark a message whose images, audio or files were omitted."""
    content = given.get("content")
    parts = content if isinstance(content, list) else ()
    kinds = {str(part.get("type")) for part in parts if isinstance(part, Mapping)}
    if kinds - {*_TEXTS, *_THOUGHTS}:
        turn.setdefault("capture", {})[f"{message}.contentParts"] = "truncated"


def _add_answer(turn: Fields, message: Fields, given: Mapping[str, Json], cells: Cells) -> None:
    """Add the agent's text or tool calls; its last text becomes the answer."""
    calls = given.get("tools_called") or given.get("tool_calls")
    if calls:
        turn.setdefault("tools", []).extend(cells.tools(calls))
    if message["content"] or not calls:
        said = turn.get("finalResponse")
        if said is not None:
            turn.setdefault("intermediateResponses", []).append(said)
        turn["finalResponse"] = message
        _mark_parts(turn, "finalResponse", given)


def _add_result(turn: Fields, given: Mapping[str, Json], cells: Cells) -> None:
    """Add the result of a tool call: to the call with the given id, or the first without a result."""
    call_id = given.get("tool_call_id")
    waiting: Sequence[Fields] = [tool for tool in turn.get("tools", ()) if "result" not in tool]
    named = [tool for tool in waiting if call_id and tool.get("id") == call_id]
    alike = [tool for tool in waiting if given.get("name") in (None, tool["name"])]
    tool = next(iter(named or alike), None)
    if tool is None:
        turn["capture"] = {**turn.get("capture", {}), "tools": "ambiguous"}
        return
    result = read_message({**given, "role": "tool"}, cells)["content"]
    tool["result"] = cells.plain(result, "messages")
    stated = given.get("error")
    if isinstance(stated, Mapping):
        tool["error"] = {
            name: str(stated[name]) for name in ("type", "message") if stated.get(name)
        }
    elif given.get("is_error") or begins_as_error(result):
        tool["error"] = {"message": result}
