"""Strictly parse a JSON document in text written by an agent."""

import json
from decimal import Decimal, InvalidOperation

import orjson

from evaltap.schemas.data import Json

_DIGITS_OF_64_BITS = 20
_DIGITS_AT_MOST = 4300  # CPython's own limit for reading an integer


def parse(text: str, *, exact: bool = False) -> Json:
    """Return the one JSON value in `text`; raise ValueError for anything else.

    No NaN or Infinity, no trailing data, no byte order mark.  With `exact`, a whole number keeps
    all its digits; otherwise those beyond 64 bits become doubles.
    """
    if not exact:
        try:
            return orjson.loads(text)
        except orjson.JSONDecodeError:
            pass  # parsed again below, which allows lone surrogates and has better messages
    if text.startswith("\ufeff"):
        raise ValueError("starts with a byte order mark")
    try:
        value = json.loads(
            text,
            parse_constant=_reject,
            parse_float=_exact_number if exact else _finite,
            parse_int=int if exact else _double_if_long,
        )
    except RecursionError:
        raise ValueError("nested too deeply") from None
    return _without_lone_surrogates(value)


def _reject(name: str) -> Json:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    number = float(text)
    if number in (float("inf"), float("-inf")):
        raise ValueError(f"number {text[:40]} is out of range")
    return number


def _double_if_long(text: str) -> float | int:
    return int(text) if len(text) < _DIGITS_OF_64_BITS else _finite(text)


def _exact_number(text: str) -> float | int:
    """Return a whole number as an integer with all its digits, any other number as a double."""
    try:
        number = Decimal(text)
    except InvalidOperation:
        raise ValueError(f"number {text[:40]} is out of range") from None
    if number.adjusted() < _DIGITS_AT_MOST and number == number.to_integral_value():
        return int(number)
    return _finite(text)


def _without_lone_surrogates(value: Json) -> Json:
    if isinstance(value, str):
        if value.isascii():
            return value
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_without_lone_surrogates(item) for item in value]
    if isinstance(value, dict):
        return {
            _without_lone_surrogates(key): _without_lone_surrogates(item)
            for key, item in value.items()
        }
    return value
