"""Free space: how much of the disk the recorder leaves to the agent."""

import os
import shutil

_RESERVE_SHARE = 0.05
_MAX_RESERVE = 1 << 30


def shortage(folder: str | os.PathLike[str], min_free_bytes: int | None = None) -> str | None:
    """Describe why nothing more may be written to the disk of `folder`; None if there is room.

    `min_free_bytes` must stay free, by default `reserve` of the disk's size. Raises OSError if
    `folder` does not exist.
    """
    disk = shutil.disk_usage(folder)
    if min_free_bytes is None:
        min_free_bytes = reserve(disk.total)
    if disk.free >= min_free_bytes:
        return None
    return f"the disk has {_mib(disk.free)} free, and {_mib(min_free_bytes)} must stay free"


def reserve(total: int) -> int:
    """Return how many bytes of a disk of `total` bytes stay free: 5%, at most 1 GiB.

    A share alone would stop a recorder that has a hundred gigabytes left on a large disk.
    """
    return min(int(total * _RESERVE_SHARE), _MAX_RESERVE)


def _mib(count: int) -> str:
    return f"{count / (1 << 20):,.0f} MiB"
