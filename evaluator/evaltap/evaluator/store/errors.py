"""The errors of the store.

EvaltapError
├── StoreError           a DuckDB file cannot be used: unreadable, not evaltap's, too new
│   ├── StoreHeldError   another process holds it: wait, or stop that process
│   ├── BusyError        it cannot be read at the moment: too many readers, or it is being reopened; retry
│   ├── TooSlowError     a reader exceeded its time limit: narrow the query
│   └── NotReadingError  a reader's statement would change more than temporary tables
└── StorageError         the disk has damaged the file, or cannot take more
    └── NoMemoryError    a statement does not fit into the memory that DuckDB may use

Other errors of DuckDB are bugs in our own statements and are not converted.
"""

from evaltap.schemas.errors import EvaltapError


class StoreError(EvaltapError):
    """Raised for a DuckDB file that cannot be used: locked, unreadable, not evaltap's or too new."""


class StoreHeldError(StoreError):
    """Raised for a DuckDB file that another process holds."""


class BusyError(StoreError):
    """Raised if the store cannot be read at the moment."""


class TooSlowError(StoreError):
    """Raised if a reader exceeds its time limit."""


class NotReadingError(StoreError):
    """Raised for a reader's statement that does more than read."""


class StorageError(EvaltapError):
    """Raised if the disk has damaged a DuckDB file or cannot take more."""


class NoMemoryError(StorageError):
    """Raised if a statement does not fit into the memory that DuckDB may use."""
