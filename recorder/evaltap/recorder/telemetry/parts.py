"""Counts the parts of a request before any of them is decoded.

An empty span takes two bytes of protobuf or three of JSON; millions of them fit into one body and
would take minutes to read. So a request is scanned first, and rejected when it has too many.
"""

from typing import Any, Final

from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import FormatError

MAX_RESOURCES: Final = 10_000
"""Maximum resources, and scopes, per request."""
MAX_PARTS: Final = 250_000
"""Maximum messages per request: spans, records, events, attributes, values."""
_WEIGHT: Final = MAX_PARTS // MAX_RESOURCES
"""How many messages a resource or scope counts as."""
_BRACES: Final = 400_000
"""Maximum in JSON, whose bodies are smaller; a brace may also be part of a text."""

_Table = dict[int, Any]  # the message in a field: another table
_ANY: _Table = {}
_KEY: _Table = {2: _ANY}
_ANY.update({5: {1: _ANY}, 6: {1: _KEY}})
_SPAN: _Table = {9: _KEY, 11: {3: _KEY}, 13: {4: _KEY}}
_LOG: _Table = {5: _ANY, 6: _KEY}


def _request(item: _Table) -> _Table:
    return {1: {1: {1: _KEY}, 2: {1: {3: _KEY}, 2: item}}}


TRACES: Final = _request(_SPAN)
LOGS: Final = _request(_LOG)


def check_protobuf(data: bytes, table: _Table) -> None:
    """Raise FormatError for a message with too many parts; its reader rejects what is not a message."""
    # A part takes two bytes: in most requests there is no room for too many inside of the records.
    if _left(data, table, levels=2) < len(data) // 2 and _left(data, table) < 0:
        raise _too_many(f"more than {MAX_PARTS:,} parts")


def _left(data: bytes, table: _Table, levels: int = 64) -> int:
    """Return how many parts more a message could have, counted down to a level; negative for none."""
    left = MAX_PARTS
    waiting: list[tuple[int, int, _Table, int]] = [(0, len(data), table, 0)]
    while waiting:
        position, end, fields, level = waiting.pop()
        while position < end:
            tag, position = _varint(data, position, end)
            kind, inner = tag & 7, fields.get(tag >> 3)
            if kind == 2:
                size, position = _varint(data, position, end)
                if inner is not None:
                    left -= _WEIGHT if level < 2 else 1
                    if left < 0:
                        return left
                    if level < levels:
                        waiting.append((position, min(position + size, end), inner, level + 1))
                position += size
            elif kind == 0:
                _, position = _varint(data, position, end)
            elif kind in (1, 5):
                position += 8 if kind == 1 else 4
            else:
                break
    return left


def _varint(data: bytes, position: int, end: int) -> tuple[int, int]:
    value = shift = 0
    while position < end:
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80 or shift > 63:
            return value, position
        shift += 7
    return value, end


def check_json_text(body: bytes) -> None:
    """Raise FormatError for a JSON text with too many objects and lists."""
    if body.count(b"{") + body.count(b"[") > _BRACES:
        raise _too_many(f"more than {_BRACES:,} objects and lists")


def check_document(document: JsonObject) -> None:
    """Raise FormatError for a request with too many resources, scopes or records."""
    for kind in ("Spans", "Logs"):
        resources = _list(document.get(f"resource{kind}"))
        scopes = [
            scope
            for one in resources
            if isinstance(one, dict)
            for scope in _list(one.get(f"scope{kind}"))
        ]
        for name, found in (("resources", resources), ("scopes", scopes)):
            if len(found) > MAX_RESOURCES:
                raise _too_many(f"{len(found):,} {name}, at most {MAX_RESOURCES:,} are taken")


def _list(value: object) -> list[Any]:
    return value if isinstance(value, list) else []


def _too_many(found: str) -> FormatError:
    return FormatError(f"the request has {found}; send smaller requests")
