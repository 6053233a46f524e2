"""The headers of dead letters as their JSON column holds them, without losing a byte."""

from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from typing import TypeAlias

import orjson

Headers: TypeAlias = tuple[tuple[str, bytes], ...]


def headers_json(headers: Iterable[tuple[str, bytes]]) -> str:
    """Return headers as JSON: `[name, text]` each, `[name, null, base64]` for what is not UTF-8."""
    return orjson.dumps([_pair(name, value) for name, value in headers]).decode()


def read_headers(text: str | None) -> Headers:
    """Return the headers that `headers_json` wrote; no text is no header."""
    return tuple((name, _value(*given)) for name, *given in orjson.loads(text or "[]"))


def text_or_base64(value: bytes) -> tuple[str | None, str]:
    """Return bytes as text, None when they are not UTF-8, and as base64, empty when they are."""
    try:
        return value.decode(), ""
    except UnicodeDecodeError:
        return None, b64encode(value).decode()


def _pair(name: str, value: bytes) -> Sequence[str | None]:
    text, encoded = text_or_base64(value)
    return (name, text, encoded) if text is None else (name, text)


def _value(text: str | None, encoded: str = "") -> bytes:
    return b64decode(encoded) if text is None else text.encode()
