"""SQL conditions on the values of slices."""

from typing import Final

from evaltap.evaluator.estimates.scope import DIMENSIONS, TIMES
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean_one_of

SLICES: Final = tuple(name for name in DIMENSIONS if name not in TIMES)
"""Dimensions that are not time windows."""


def condition(name: str, value: str, *, where: str) -> str:
    """Return the SQL condition that a turn is in a slice; raise InputError that mentions `where`."""
    if name not in SLICES:
        hint = did_you_mean_one_of(name, SLICES)
        raise InputError(f"{where}: traffic has no {name!r}; {hint}")
    dimension = DIMENSIONS[name]
    quoted = "'" + value.replace("'", "''") + "'"
    if dimension.many:
        return f"list_contains({dimension.expression}, {quoted})"
    return f"{dimension.expression} = {quoted}"
