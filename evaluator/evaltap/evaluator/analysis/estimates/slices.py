"""SQL conditions on the values of slices."""

from typing import Final

from evaltap.evaluator.analysis.estimates.scope import DIMENSIONS, TIMES
from evaltap.schemas.known import check_known

SLICES: Final = tuple(name for name in DIMENSIONS if name not in TIMES)
"""Dimensions that are not time windows."""


def condition(name: str, value: str, *, where: str) -> str:
    """Return the SQL condition that a turn is in a slice; raise InputError that mentions `where`."""
    check_known(name, SLICES, f"{where}: traffic has no {name!r}")
    dimension = DIMENSIONS[name]
    quoted = "'" + value.replace("'", "''") + "'"
    if dimension.many:
        return f"list_contains({dimension.expression}, {quoted})"
    return f"{dimension.expression} = {quoted}"
