"""A Model Context Protocol server that offers recorded tools: what it replies to each message.

Only what tools need: initialize, ping, tools/list, tools/call (specification of 2025-06-18).
"""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from evaltap.recorder.answering import RecordedError, ToolMiss
from evaltap.schemas.data import Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.canonical import loads

Answer = Callable[[str, Json], Json]
"""Returns a recorded result; raises RecordedError or ToolMiss."""
NO_RECORDING: Final = -32001
_UNKNOWN_METHOD: Final = -32601
_INVALID: Final = -32600
_INVALID_PARAMS: Final = -32602
_VERSION: Final = "2025-06-18"
_PARTS: Final = (
    ("text", "text", str),
    ("image", "data", str),
    ("audio", "data", str),
    ("resource", "resource", dict),
    ("resource_link", "uri", str),
)
"""What a part of a result has, by its type."""


def message_of(line: bytes) -> Json:
    """Return the message in a line; None if it is not JSON, which no message is either."""
    try:
        return loads(line)
    except FormatError:
        return None


def reply_to(
    message: object, tools: Sequence[Mapping[str, Any]], answer: Answer
) -> dict[str, Any] | None:
    """Return the reply to a JSON-RPC message; None for a notification."""
    if not isinstance(message, dict) or not isinstance(message.get("method"), str):
        return _failed(None, _INVALID, "expected a JSON-RPC request")
    if "id" not in message:
        return None
    number, method = message["id"], message["method"]
    if not isinstance(number, str | int | float | None):
        return _failed(None, _INVALID, "expected an id that is a text or a number")
    given = message.get("params")
    params: dict[str, Any] = given if isinstance(given, dict) else {}
    if method == "initialize":
        version = params.get("protocolVersion")
        return _result(
            number,
            {
                "protocolVersion": version if isinstance(version, str) else _VERSION,
                "capabilities": {"tools": {}},
                "serverInfo": {"name": "evaltap mocks", "version": "1"},
            },
        )
    if method == "ping":
        return _result(number, {})
    if method == "tools/list":
        return _result(number, {"tools": [*tools]})
    if method != "tools/call":
        return _failed(number, _UNKNOWN_METHOD, f"unknown method {method}")
    return _called(number, params, answer)


def _called(
    number: str | float | None, params: Mapping[str, Any], answer: Answer
) -> dict[str, Any]:
    name = params.get("name")
    if not isinstance(name, str) or not name:
        return _failed(number, _INVALID_PARAMS, "expected the name of a tool")
    try:
        found = answer(name, params.get("arguments") or {})
    except RecordedError as error:
        told = str(error) if error.result is None else error.result
        return _result(number, {**content_of(told), "isError": True})
    except ToolMiss as miss:
        return _failed(number, NO_RECORDING, str(miss))
    return _result(number, content_of(found))


def content_of(result: Json) -> dict[str, Any]:
    """Return a recorded result in MCP's form; one that has it already is kept."""
    if isinstance(result, dict) and isinstance(result.get("content"), list):
        return result
    if isinstance(result, list) and result and all(map(_is_block, result)):
        return {"content": result}
    if isinstance(result, str):
        return {"content": [_text(result)]}
    found: dict[str, Any] = {"content": [_text(json.dumps(result, ensure_ascii=False))]}
    return found | ({"structuredContent": result} if isinstance(result, dict) else {})


def _is_block(one: Json) -> bool:
    """Return whether this is a part of a result as MCP has it; frameworks have images of other forms."""
    return isinstance(one, dict) and any(
        one.get("type") == kind and isinstance(one.get(part), of) for kind, part, of in _PARTS
    )


def _text(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _result(number: object, result: Mapping[str, Any]) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "result": result}


def _failed(number: object, code: int, why: str) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "error": {"code": code, "message": why}}
