"""The spans of a tracing product's own export, before they have OTLP's form."""

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
    """Return what there is, as an SDK writes it: texts as they are, all else as JSON."""
    return {
        key: value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        for key, value in values.items()
        if value is not None and value != {}
    }


def identifier(given: object, digits: int) -> str:
    """Return an id in the digits of a trace or a span; one that has other letters is hashed."""
    text = str(given).replace("-", "").lower()
    if len(text) == digits and set(text) <= set("0123456789abcdef") and text.strip("0"):
        return text
    return hashlib.sha256(str(given).encode()).hexdigest()[:digits]
