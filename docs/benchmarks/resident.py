"""The memory of a process, for the benchmarks that print it."""

import os
from pathlib import Path


def resident_mb(process: int | str = "self") -> float:
    """Return the memory of a process that is in RAM, in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6
