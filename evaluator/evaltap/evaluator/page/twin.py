"""The JSON of a page: the same data that its template shows."""

import json
from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any

import orjson


def as_json(data: object) -> bytes:
    """Return data as JSON; invalid Unicode is written as escapes."""
    try:
        return orjson.dumps(data, default=_plain, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(_unpacked(data), default=_plain).encode()


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, tuple):
        return _parts(value) or list(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)


def _unpacked(value: object) -> object:
    """Return data as dictionaries and lists, because `json` drops the names of named tuples."""
    if parts := _parts(value):
        return {str(name): _unpacked(one) for name, one in parts.items()}
    if isinstance(value, list | tuple):
        return [_unpacked(one) for one in value]
    return value


def _parts(value: Any) -> Mapping[Any, Any]:
    """Return the named parts of a value; empty if it has none."""
    if isinstance(value, Mapping):
        return value
    if isinstance(value, tuple):
        return {name: getattr(value, name) for name in getattr(value, "_fields", ())}
    if is_dataclass(value) and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    return {}
