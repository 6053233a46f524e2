"""Plain JSON data: used on hot paths instead of models."""

import json
from typing import Any, TypeAlias

import orjson

Json: TypeAlias = Any
"""A decoded JSON value: None, bool, int, float, str, list or dict of the same, checked where it is used."""

JsonObject: TypeAlias = dict[str, Json]
"""A decoded JSON object."""

CaseData: TypeAlias = JsonObject
"""An eval case in canonical form."""


def json_bytes(value: object) -> bytes:
    """Return a value as JSON on one line.

    orjson rejects lone surrogates, integers beyond 64 bits and more than 254 levels; `json` writes those.
    """
    try:
        return orjson.dumps(value)
    except TypeError:
        return json.dumps(value).encode()
