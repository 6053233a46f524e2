"""The JSON of a page: the same data that its template shows."""

import json
from dataclasses import asdict, is_dataclass
from datetime import datetime
from typing import Any

import orjson


def as_json(data: Any) -> bytes:
    """Return data as JSON; text that is not valid Unicode is written as escapes."""
    try:
        return orjson.dumps(data, default=_plain, option=orjson.OPT_NAIVE_UTC | orjson.OPT_UTC_Z)
    except (TypeError, orjson.JSONEncodeError):
        return json.dumps(data, default=_plain).encode()


def _plain(value: Any) -> Any:
    if isinstance(value, datetime):
        return value.isoformat()
    if is_dataclass(value) and not isinstance(value, type):
        return asdict(value)
    if isinstance(value, set | frozenset):
        return sorted(value)
    return str(value)
