"""The errors of the store.

EvaltapError
├── StoreError           a DuckDB file that cannot be used: unreadable, not ours, too new
│   ├── StoreHeldError   ... as another process holds it: wait, or stop that one
│   ├── BusyError        ... just now: too many read it, or it is being opened again; ask again
│   ├── TooSlowError     ... in the time that a reader has: ask for less
│   └── NotReadingError  ... by a reader that would change more than its temporary tables
└── StorageError         a file that the disk has damaged or cannot take, or that is too large to read
    └── NoMemoryError    ... for the memory that DuckDB may use

What DuckDB raises for another reason is a mistake in our own statements, and stays as it is.
"""

from evaltap.schemas.errors import EvaltapError


class StoreError(EvaltapError):
    """Report a DuckDB file that cannot be used: locked, unreadable, not ours or too new."""


class StoreHeldError(StoreError):
    """Report a DuckDB file that another process holds."""


class BusyError(StoreError):
    """Report that the store cannot be read just now."""


class TooSlowError(StoreError):
    """Report that a reader took longer than it may."""


class NotReadingError(StoreError):
    """Report a statement of a reader that does more than read."""


class StorageError(EvaltapError):
    """Report a DuckDB file that the disk has damaged, or cannot take."""


class NoMemoryError(StorageError):
    """Report that what was asked for does not fit into the memory that DuckDB may use."""
