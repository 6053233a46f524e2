"""Warns about a JSON file with a repeated key in an object.

Like Go, evaltap then uses the last value. The file stays valid, because tRPC-Agent-Go reads it, but
in a file written by hand it is usually a mistake: a field that was copied and not renamed. The check
costs 5 ms per megabyte.
"""

import json
import logging
from functools import lru_cache
from typing import Any

from evaltap.schemas.text import cut_text

_LOG = logging.getLogger("evaltap.files")


def warn_of_repeated_key(data: bytes, path: str) -> None:
    """Log a warning that names the first repeated key of a valid document, once per file and key."""
    place = repeated_key(data)
    if place is not None:
        _warn(
            f"{path}: {cut_text(place, 200)} occurs more than once in its object; only the last value is used"
        )


@lru_cache(maxsize=256)  # some commands read a file twice
def _warn(message: str) -> None:
    _LOG.warning("%s", message)


def repeated_key(data: bytes) -> str | None:
    """Return the place of the first repeated key, such as `evalCases[0].evalId`, or None."""
    try:
        json.loads(data, object_pairs_hook=_refuse_repeated)
    except _RepeatedKeyError:
        return _place(json.loads(data, object_pairs_hook=_Pairs))
    except (ValueError, RecursionError):  # nested deeper than `json` reads, or not UTF-8
        return None
    return None


class _RepeatedKeyError(Exception):
    pass


class _Pairs(list[tuple[str, Any]]):
    """An object as a list of its keys and values, repeated keys included."""


def _refuse_repeated(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) < len(pairs):
        raise _RepeatedKeyError


def _place(value: object, prefix: str = "") -> str | None:
    """Return the place of the first repeated key in the order of the document."""
    if isinstance(value, _Pairs):
        seen: set[str] = set()
        for key, item in value:
            place = f"{prefix}.{key}" if prefix else key
            if key in seen:
                return place
            seen.add(key)
            found = _place(item, place)
            if found is not None:
                return found
    elif isinstance(value, list):
        for index, item in enumerate(value):
            found = _place(item, f"{prefix}[{index}]")
            if found is not None:
                return found
    return None
