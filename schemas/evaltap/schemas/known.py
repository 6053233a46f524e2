"""Checks of names: an unknown name is an error that suggests the nearest known one."""

from collections.abc import Collection

from evaltap.schemas.errors import InputError
from evaltap.schemas.text import did_you_mean, did_you_mean_one_of


def check_known(name: str, known: Collection[str], problem: str, remedy: str = "") -> None:
    """Raise InputError if a name is unknown.

    The message is `problem`, then the nearest known name. If no name is near, `remedy` follows, or the list
    of known names if there is no remedy.
    """
    if name not in known:
        hint = did_you_mean(name, known) or remedy or did_you_mean_one_of(name, known)
        raise InputError(f"{problem}; {hint}")
