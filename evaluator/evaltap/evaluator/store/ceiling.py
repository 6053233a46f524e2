"""A ceiling for the memory of this process while it carries out somebody's statement.

DuckDB's own limit does not count a single value, nor the row of values that one function makes at a time, and
nothing interrupts that function.  Beyond the ceiling, the allocation fails and with it the statement.
"""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

STATEMENT_MEGABYTES: Final = 512
"""How much the process may grow meanwhile: all that DuckDB may take for readers, and some values."""

_LOCK: Final = threading.Lock()
_before: list[int] = []
"""The limits that were found, one for each block that is being carried out."""


@contextmanager
def limited_growth() -> Iterator[None]:
    """Let the process grow by no more than STATEMENT_MEGABYTES in the block; only Linux can.

    Several threads may be in such a block; the first one sets the limit and the last one removes it.
    """
    if sys.platform != "linux":
        yield
        return
    import resource

    with _LOCK:
        soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if not _before:
            limit = _data_bytes() + (STATEMENT_MEGABYTES << 20)
            if soft == resource.RLIM_INFINITY or limit < soft:
                resource.setrlimit(resource.RLIMIT_DATA, (limit, hard))
        _before.append(_before[0] if _before else soft)
    try:
        yield
    finally:
        with _LOCK:
            soft = _before.pop()
            if not _before:
                resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))


def _data_bytes() -> int:
    """Return what RLIMIT_DATA counts, with the stack."""
    pages = int(Path("/proc/self/statm").read_text().split()[5])
    return pages * os.sysconf("SC_PAGE_SIZE")
