"""The file lock that marks the owner of a spool, where the system supports it.

Windows has no `flock`. Without it a spool in use looks like one whose process has ended, so each
process sends only its own spools, and abandoned ones stay: they are local logs, and `evaltap
consume --log FILE` lands them.
"""

from typing import IO

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]  # Windows


def has_locks() -> bool:
    """Return whether the system supports file locks."""
    return fcntl is not None


def try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; return False when someone else holds the lock.

    Without file locks an exclusive lock is always granted, and a `shared` one, which probes for an
    owner, never.
    """
    if fcntl is None:
        return not shared
    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
