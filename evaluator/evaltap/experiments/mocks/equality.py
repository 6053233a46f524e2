"""When what was asked, or made, is what was recorded."""

import math
from collections.abc import Callable, Mapping
from typing import Final

from evaltap.schemas.data import Json
from evaltap.schemas.files.canonical import format_number

_ROUNDING: Final = 1e-12
"""The part by which equal numbers may differ that were computed in another way."""
_NO_FRACTIONS: Final = 2**53
"""From here on doubles are whole numbers, and not all of them."""
_NUMBERS: Final = (int, float)


def same(
    asked: Json, recorded: Json, ignored: Mapping[str, Json], alike: Callable[[Json, Json], bool]
) -> bool:
    """Return whether arguments are the same but for those that the tree marks with true."""
    if isinstance(asked, dict) and isinstance(recorded, dict):
        names = {name for name in asked.keys() | recorded.keys() if ignored.get(name) is not True}
        trees = {name: tree for name, tree in ignored.items() if isinstance(tree, dict)}
        return names <= asked.keys() & recorded.keys() and all(
            same(asked[name], recorded[name], trees.get(name, {}), alike) for name in names
        )
    if isinstance(asked, list) and isinstance(recorded, list):
        return len(asked) == len(recorded) and all(
            same(one, other, {}, alike) for one, other in zip(asked, recorded, strict=True)
        )
    return alike(asked, recorded)


def equal(asked: Json, recorded: Json) -> bool:
    """Return whether values are equal and of one type."""
    return type(asked) is type(recorded) and asked == recorded


def near(asked: Json, recorded: Json) -> bool:
    """Return whether values are equal, or numbers that are: 1 and 1.0, a fraction computed in another way, an
    integer and what a file keeps of it.
    """
    if not (type(asked) in _NUMBERS and type(recorded) in _NUMBERS):
        return equal(asked, recorded)
    if asked == recorded:
        return True
    largest = max(abs(asked), abs(recorded))
    if largest >= _NO_FRACTIONS:  # eval sets hold the nearest double, as in tRPC-Agent-Go
        return largest < 2**64 and format_number(asked) == str(recorded)
    are_whole = float(asked).is_integer() and float(recorded).is_integer()
    return not are_whole and math.isclose(asked, recorded, rel_tol=_ROUNDING)
