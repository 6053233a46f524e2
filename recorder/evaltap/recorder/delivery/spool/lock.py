"""The lock on a file that says whose a spool is, where the system has such locks.

Windows has no `flock`.  Without it nobody can tell a spool in use from one whose process has ended, so
each process sends its own spools only, and those that others left stay: they are local logs, and
`evaltap consume --log FILE` lands them.
"""

from typing import IO


def has_locks() -> bool:
    """Tell whether the system has locks on files."""
    try:
        import fcntl  # noqa: F401
    except ImportError:
        return False
    return True


def try_lock(file: IO[bytes], *, shared: bool = False) -> bool:
    """Lock an open file until it is closed; False when somebody else holds it.

    Without locks an exclusive lock is always granted and a `shared` one, which asks for an owner, never.
    """
    if not has_locks():
        return not shared
    import fcntl

    try:
        fcntl.flock(file, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except OSError:
        return False
    return True
