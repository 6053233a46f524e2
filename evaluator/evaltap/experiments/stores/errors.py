"""What a store refuses.

InputError           a blank id, a case that cannot be run, a name that no path may hold
├── NotFoundError    no such set, case, metric or result
├── ExistsError      there is one with this id
└── ChangedError     it is not what the caller has read any more

DatabaseError        the database cannot be reached, or refuses a statement
"""

from evaltap.schemas.errors import EvaltapError, InputError


class NotFoundError(InputError):
    """Raised for a set, case, metric or result that is not there."""


class ExistsError(InputError):
    """Raised for a second set, case or metric with one id."""


class ChangedError(InputError):
    """Raised for an update of a case that has changed since it was read."""


class DatabaseError(EvaltapError):
    """Raised when a database cannot be reached or refuses a statement; its text has no password."""


def required(**given: str) -> None:
    """Raise InputError for a blank id."""
    for name, value in given.items():
        if not value:
            raise InputError(f"the {name.replace('_', ' ')} is empty; give one")
