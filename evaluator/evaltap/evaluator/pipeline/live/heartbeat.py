"""A file whose modification time shows that a process makes progress, for probes that can only read files."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from evaltap.schemas.errors import InputError

EVERY_SECONDS: Final = 5.0


def heartbeat(path: Path, clock: Callable[[], float] = time.monotonic) -> Callable[[], None]:
    """Return a function that touches the file at most every five seconds.

    Raises InputError if the file cannot be written.
    """
    last = clock()
    try:
        path.touch(mode=0o600)
    except OSError as error:
        raise InputError(
            f"--heartbeat {path}: cannot write it ({error.strerror}); name a file in a"
            " writable folder"
        ) from None

    def beat() -> None:
        nonlocal last
        if (now := clock()) - last >= EVERY_SECONDS:
            last = now
            path.touch(mode=0o600)

    return beat
