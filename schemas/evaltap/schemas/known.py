"""Names that must be known: a misspelt one is an error that suggests the nearest."""

from collections.abc import Collection

from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of


def check_known(name: str, known: Collection[str], problem: str, remedy: str = "") -> None:
    """Raise InputError for an unknown name: the problem, then the nearest name.

    Where none is near, the remedy follows, else all names that are expected.
    """
    if name not in known:
        hint = did_you_mean(name, known) or remedy or did_you_mean_one_of(name, known)
        raise InputError(f"{problem}; {hint}")
