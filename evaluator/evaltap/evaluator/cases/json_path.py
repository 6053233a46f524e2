"""A restricted JSON path such as `$.a.b[0]` or `a.b[0]`: a single place, without wildcards."""

import re
from collections.abc import Sequence
from typing import Final

import orjson

from evaltap.evaluator.cases.json_text import parse
from evaltap.schemas.data import Json

_KEY: Final = re.compile(r"[^.\[\]]+")
_INDEX: Final = re.compile(r"[+-]?[0-9]{1,9}")


def extract(text: str, path: str) -> str:
    """Return the value at `path` in a JSON text: strings unchanged, other values as compact JSON.

    Raises ValueError if the text is not JSON, or the path is invalid or does not exist in it.
    """
    try:
        value = parse(text)
    except ValueError as error:
        several = "multiple JSON values: " if "Extra data" in str(error) else ""
        raise ValueError(f"parse source json: {several}{error}") from None
    value = follow(value, read_path(path))
    if isinstance(value, str):
        return value
    return orjson.dumps(value, option=orjson.OPT_SORT_KEYS).decode()


def follow(value: Json, steps: Sequence[str | int]) -> Json:
    """Return the value at the end of a parsed path; raise ValueError if it does not exist."""
    for step in steps:
        value = _step(value, step)
    return value


def read_path(path: str) -> list[str | int]:
    """Parse a path into keys and indexes, as tRPC-Agent-Go does; raise ValueError if it is invalid."""
    steps: list[str | int] = []
    place = 1 if path.startswith("$") else 0
    if place and path[1:2] not in ("", ".", "["):
        raise ValueError(f"path '{path}' has an invalid root selector; expected $. or $[")
    while place < len(path):
        if path[place] == "[":
            index, place = _index(path, place)
            steps.append(index)
        elif path[place] == "." or not place:
            key, place = _key(path, place + (path[place] == "."))
            steps.append(key)
        else:
            raise ValueError(f"path '{path}': missing delimiter (. or [) at position {place}")
    return steps


def _key(path: str, begin: int) -> tuple[str, int]:
    """Return the key that begins there, and where it ends."""
    match = _KEY.match(path, begin)
    end = match.end() if match else begin
    if path[end : end + 1] == "]":
        raise ValueError(f"path '{path}': unexpected ] at position {end}")
    if match is None:
        raise ValueError(f"path '{path}': missing key at position {begin}")
    if "*" in match[0]:
        raise ValueError(f"path '{path}': unsupported wildcard; a path leads to one place")
    return match[0], end


def _index(path: str, begin: int) -> tuple[int, int]:
    """Return the index in the brackets that begin there, and where they end."""
    end = path.find("]", begin)
    if end < 0:
        raise ValueError(f"path '{path}': missing ] after position {begin}")
    if not (given := path[begin + 1 : end]):
        raise ValueError(f"path '{path}': missing index at position {begin + 1}")
    if not _INDEX.fullmatch(given):
        raise ValueError(f"path '{path}': invalid index '{given}'; expected a whole number")
    return int(given), end + 1


def _step(value: Json, step: str | int) -> Json:
    if isinstance(step, str):
        if not isinstance(value, dict):
            raise ValueError(f"expects object before key '{step}'; found {type(value).__name__}")
        if step not in value:
            raise ValueError(f"key '{step}' not found; keys: {', '.join(value) or 'none'}")
        return value[step]
    if not isinstance(value, list):
        raise ValueError(f"expects array before index {step}; found {type(value).__name__}")
    if not 0 <= step < len(value):
        raise ValueError(f"index {step} is out of range; the array has {len(value)}")
    return value[step]
