"""Helpers that convert spans from the exports of tracing products to OTLP's form."""

import hashlib
import json
from collections.abc import Mapping

from evaltap.schemas.data import JsonObject

Entry = tuple[JsonObject, str, JsonObject]
"""Resource attributes, instrumentation scope and the span."""


def mapping(value: object) -> Mapping[str, object]:
    """Return an object; empty for anything else."""
    return value if isinstance(value, Mapping) else {}


def texts(values: Mapping[str, object]) -> JsonObject:
    """Return the present values as an SDK writes them: texts unchanged, other values as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
        if value is not None and value != {}
    }


def identifier(given: object, digits: int) -> str:
    """Return an id with the hex digits of a trace or span id; an id that is not hexadecimal is hashed."""
    text = str(given).replace("-", "").lower()
    if len(text) == digits and set(text) <= set("0123456789abcdef") and text.strip("0"):
        return text
    return hashlib.sha256(str(given).encode()).hexdigest()[:digits]
