"""A restricted JSON path such as `$.a.b[0]`: a single place, without wildcards."""

import re
from collections.abc import Sequence
from typing import Final

import orjson

from evaltap.evaluator.cases.json_text import parse
from evaltap.schemas.data import Json

_KEY: Final = re.compile(r"[^.\[\]]+")


def extract(text: str, path: str) -> str:
    """Return the value at `path` in a JSON text: strings unchanged, other values as compact JSON.

    Raises ValueError if the text is not JSON, or the path is invalid or does not exist in it.
    """
    steps = read_path(path)
    try:
        value = parse(text)
    except ValueError as error:
        raise ValueError(f"parse source json: {error}") from None
    value = follow(value, steps)
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def follow(value: Json, steps: Sequence[str | int]) -> Json:
    """Return the value at the end of a parsed path; raise ValueError if it does not exist."""
    for step in steps:
        value = _step(value, step)
    return value


def read_path(path: str) -> list[str | int]:
    """Parse a path into keys and indexes; raise ValueError if it is invalid."""
    if not path.startswith("$"):
        raise ValueError(f"path '{path}' must begin with $, e.g. $.answer")
    steps: list[str | int] = []
    place = 1
    while place < len(path):
        mark = path[place]
        if mark == "[":
            end = path.find("]", place)
            if end < 0:
                raise ValueError(f"path '{path}': missing ] after position {place}")
            index = path[place + 1 : end]
            if not index.isascii() or not index.isdigit():
                raise ValueError(f"path '{path}': index '{index}' is not a whole number")
            steps.append(int(index))
            place = end + 1
        elif mark == ".":
            match = _KEY.match(path, place + 1)
            if match is None:
                raise ValueError(f"path '{path}': expects a key at position {place + 1}")
            steps.append(match[0])
            place = match.end()
        elif mark == "]":
            raise ValueError(f"path '{path}': unexpected ] at position {place}")
        else:
            raise ValueError(f"path '{path}': missing delimiter (. or [) at position {place}")
    return steps


def _step(value: Json, step: str | int) -> Json:
    if isinstance(step, str):
        if not isinstance(value, dict):
            raise ValueError(f"expects object before key '{step}'; found {type(value).__name__}")
        if step not in value:
            raise ValueError(f"key '{step}' not found; keys: {', '.join(value) or 'none'}")
        return value[step]
    if not isinstance(value, list):
        raise ValueError(f"expects list before index {step}; found {type(value).__name__}")
    if step >= len(value):
        raise ValueError(f"index {step} is beyond the list of {len(value)}")
    return value[step]
