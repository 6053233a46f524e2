"""Files that tests download or build once and keep outside the tree, in the user's cache folder."""

import fcntl
import os
from collections.abc import Callable
from pathlib import Path


def cache_folder(name: str) -> Path:
    """Return where something is kept; the folder need not be there."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return Path(cache) / "evaltap-tests" / name


def kept(name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder of that name, made when it is not there; test runs wait for each other.

    `make` fills the new folder that it is given; it becomes the folder only when that worked.
    """
    folder = cache_folder(name)
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_name(folder.name + ".lock").open("ab") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            fresh = folder.with_name(f"{folder.name}.{os.getpid()}")
            fresh.mkdir()
            make(fresh)
            fresh.rename(folder)
    return folder
