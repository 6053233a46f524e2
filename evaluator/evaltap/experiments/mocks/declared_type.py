"""Give a recorded result back in the type that the tool's function declares to return."""

import functools
import typing
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import orjson
from pydantic import TypeAdapter

from evaltap.experiments.mocks.equality import near, same
from evaltap.recorder.copying import freeze, thaw
from evaltap.schemas.data import Json

_LONGEST: Final = 16 * 1024 * 1024
"""Bytes of a text in a result."""


def in_declared_type(result: Json, function: Callable[..., Any] | None) -> Any:  # what it returns
    """Return a recorded result as `function` would: an object of the declared type if one is recorded as this
    JSON, such as a data class or a Decimal; otherwise the JSON.
    """
    if function is None:
        return result
    # The types and what makes them are the user's: any code, and any exception.
    with suppress(Exception):
        if (adapter := _adapter(function)) is None:
            return result
        made = adapter.validate_json(orjson.dumps(result))
        if same(made, result, {}, near):  # plain JSON: 1 stays 1 where a float is declared
            return result
        frozen, was_cut = freeze(made, _LONGEST)
        if not was_cut and same(thaw(frozen), result, {}, near):
            return made
    return result


@functools.lru_cache(maxsize=1024)
def _adapter(function: Callable[..., Any]) -> TypeAdapter[Any] | None:
    declared = typing.get_type_hints(function, include_extras=True).get("return", Any)
    return None if declared is Any else TypeAdapter(declared)
