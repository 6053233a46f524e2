"""Wait for what another thread or process brings about."""

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def wait_for(found: Callable[[], T], seconds: float = 60.0, said: Callable[[], str] = str) -> T:
    """Return the first value that is true; fail with what `said` returns when none comes in time."""
    deadline = time.monotonic() + seconds
    while not (value := found()):
        assert time.monotonic() < deadline, said() or "it did not come about in time"
        time.sleep(0.02)
    return value
