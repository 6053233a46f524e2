"""JSON text, read strictly and written in the canonical form of the file formats.

The written form is that of Go's `encoding/json` with two spaces of indentation, as written by
tRPC-Agent-Go: UTF-8, one newline at the end, `<`, `>`, `&`, U+2028 and U+2029 escaped, floats in
their shortest form without `.0`, exponents only below 1e-6 and from 1e21 on. Numbers are float64
there, so an integer beyond 2**53 is written as the nearest float64.

Reading rejects what Go rejects (NaN, Infinity, trailing data, a byte order mark) and, like Go,
turns a lone surrogate escape into U+FFFD and lets the last of duplicate keys win.
"""

import json
import math
import re
from collections.abc import Callable
from json.encoder import encode_basestring
from typing import Any

import orjson

from evaltap.schemas.data import Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files.refused import HEAD_BYTES, binary_kind

_ESCAPES = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
_LINE_ENDS = str.maketrans({"\u2028": "\\u2028", "\u2029": "\\u2029"})
_EXACT_INTEGER = 2**53
_DIGITS_OF_64_BITS = 20
_NEGATIVE_ZERO = re.compile(rb"-0[\s,\]}]")
TOO_DEEP = "the document is nested too deeply to be written"


def loads(data: bytes, *, path: str = "", place: str = "") -> Json:
    """Decode one JSON document.

    Raises FormatError with `path` and `place` (or the line and column) when it is invalid.
    """
    try:
        value = orjson.loads(data)
    except orjson.JSONDecodeError as error:
        if "surrogate in string" in error.msg:
            return _loads_slowly(data, path=path, place=place)
        if kind := binary_kind(data[:HEAD_BYTES]):
            raise FormatError(f"is {kind}; expected JSON", path=path, place=place) from None
        where = place or f"line {error.lineno}, column {error.colno}"
        raise FormatError(_explain(data, error), path=path, place=where) from None
    if b"-0" in data and _NEGATIVE_ZERO.search(data):
        return _loads_slowly(data, path=path, place=place)
    return value


def _explain(data: bytes, error: json.JSONDecodeError) -> str:
    reason = error.msg.split(": line")[0]
    if not data.strip():
        return "the document is empty; expected one JSON value"
    if data[error.pos : error.pos + 1] in (b"N", b"I", b"-") and any(
        word in data[error.pos : error.pos + 10] for word in (b"NaN", b"Infinity")
    ):
        return "NaN and Infinity are not JSON; write null or leave the field out"
    if "unexpected content" in reason:
        return "there is more text after the JSON value; expected one document"
    if "unexpected end" in reason:
        return f"the document ends too early ({reason}); is it truncated?"
    if "unexpected character" in reason:
        found = data.decode("utf-8", "replace")[error.pos : error.pos + 1]
        expected = reason.partition(", ")[2]
        return f"not valid JSON (found {found!r}, {expected})"
    return f"not valid JSON ({reason})"


def _loads_slowly(data: bytes, *, path: str, place: str) -> object:
    """Decode what orjson refuses, lone surrogates, and what it changes: `-0`, which is 0 there."""

    def refuse(word: str) -> object:
        raise FormatError(f"{word} is not JSON; write null instead", path=path, place=place)

    try:
        value = json.loads(data, parse_constant=refuse, parse_int=_integer, parse_float=_finite)
        return _without_surrogates(value)
    except (ValueError, RecursionError) as error:
        raise FormatError(f"not valid JSON ({error})", path=path, place=place) from None


def _integer(text: str) -> int | float:
    """Return a whole number as orjson does: beyond 64 bits it becomes a float; so does -0."""
    if text == "-0":
        return -0.0
    value = int(text) if len(text) <= _DIGITS_OF_64_BITS else _finite(text)
    return value if -(2**63) <= value < 2**64 else float(value)


def _finite(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"number {text[:20]} is out of range")
    return value


def _without_surrogates(value: object) -> object:
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {_without_surrogates(key): _without_surrogates(item) for key, item in value.items()}
    return value


def dumps(value: object, *, readable: bool = False, indent: int = 2) -> bytes:
    """Encode plain JSON data in canonical form, with a trailing newline.

    `readable`: leave `<`, `>` and `&` unescaped, for people who read the file and its diffs.
    """
    escapes = _LINE_ENDS if readable else _ESCAPES
    pieces: list[str] = []
    try:
        _write(value, "\n", escapes, " " * indent, pieces.append)
    except RecursionError:
        raise FormatError(TOO_DEEP) from None
    pieces.append("\n")
    return "".join(pieces).encode("utf-8", "replace")


def format_number(value: int | float) -> str:
    """Write a number as Go writes a float64: `1`, `0.1`, `1e-7`, `1e+21`."""
    if isinstance(value, int):
        if -_EXACT_INTEGER <= value <= _EXACT_INTEGER:
            return str(value)
        value = float(value)
    if value == 0:
        return "-0" if str(value).startswith("-") else "0"
    digits, _, exponent = f"{value!r}".partition("e")
    if 1e-6 <= abs(value) < 1e21:
        return _without_exponent(digits, int(exponent or 0))
    sign = "-" if int(exponent) < 0 else "+"
    return f"{digits.removesuffix('.0')}e{sign}{abs(int(exponent))}"


def _without_exponent(digits: str, exponent: int) -> str:
    if exponent == 0:
        return digits.removesuffix(".0")
    sign = "-" if digits.startswith("-") else ""
    whole, _, fraction = digits.lstrip("-").partition(".")
    if exponent > 0:
        return sign + whole + fraction.ljust(exponent, "0")
    return f"{sign}0.{'0' * (-exponent - 1)}{whole}{fraction}"


def _write(
    value: Any, newline: str, escapes: dict[int, str], step: str, put: Callable[[str], None]
) -> None:
    """Pass the pieces of a value's text to `put`; a generator at each level takes a quarter longer."""
    if isinstance(value, str):
        put(encode_basestring(value).translate(escapes))
    elif value is None:
        put("null")
    elif value is True:
        put("true")
    elif value is False:
        put("false")
    elif isinstance(value, int | float):
        put(format_number(value))
    elif isinstance(value, dict):
        inner = newline + step
        opening = "{" + inner
        for key, item in value.items():
            put(f"{opening}{encode_basestring(key).translate(escapes)}: ")
            _write(item, inner, escapes, step, put)
            opening = "," + inner
        put(newline + "}" if value else "{}")
    else:
        inner = newline + step
        opening = "[" + inner
        for item in value:
            put(opening)
            _write(item, inner, escapes, step, put)
            opening = "," + inner
        put(newline + "]" if value else "[]")
