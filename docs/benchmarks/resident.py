"""The memory and the processor time of a process, for the benchmarks that print them."""

import os
from pathlib import Path


def resident_mb(process: int | str = "self") -> float:
    """Return the memory of a process that is in RAM, in MB."""
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def processor_seconds(process: int | str = "self") -> float:
    """Return the processor time that a process has used, in seconds."""
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
