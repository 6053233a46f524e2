"""Faults of the recorder itself: counted where they happen, logged from the background only.

Nothing here logs, locks or allocates much on the agent's threads: a logger that records, or a
garbage collection in the middle of a lock, has hung more than one process.
"""

import itertools
import logging
from collections import Counter, deque
from types import TracebackType

from evaltap.schemas.errors import ConfigurationError

_LOG = logging.getLogger("evaltap.recorder")
LOG_INTERVAL_SECONDS = 60.0


class Faults:
    """Count faults from any thread; say them in the log once an interval, with their number.

    `meaning` is what they mean to the reader of the log.
    """

    def __init__(self, meaning: str = "the agent is not affected") -> None:
        self.total = 0
        self._meaning = meaning
        self._numbers = itertools.count(1)
        self._fresh: deque[str] = deque(maxlen=1000)
        self._last_logged = float("-inf")

    def report(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault; keeps the kind of the error, and no text that may hold content."""
        self._fresh.append(f"{where}: {_said(error)}" if error is not None else where)
        self.total = next(self._numbers)

    def log(self, now: float) -> None:
        """Write down what happened since the last time; `now` is a monotonic time in seconds."""
        if not self._fresh or now - self._last_logged < LOG_INTERVAL_SECONDS:
            return
        self._last_logged = now
        seen: Counter[str] = Counter()
        while self._fresh:
            seen[self._fresh.popleft()] += 1
        details = ", ".join(f"{where} ({count} times)" for where, count in seen.most_common(5))
        _LOG.warning("the recorder had %d faults; %s: %s", seen.total(), self._meaning, details)


def _said(error: BaseException) -> str:
    """Return the text of an error about settings, of any other its kind."""
    return f"{error}" if isinstance(error, ConfigurationError) else type(error).__name__


class guard:
    """Let no exception of the recorder's code out: `with guard(faults, "adk.before_tool"): ...`.

    Exceptions are counted and end here; what is no `Exception` (a cancelled task, an interrupt)
    belongs to the agent and passes.
    """

    __slots__ = ("_faults", "_where")

    def __init__(self, faults: Faults, where: str) -> None:
        self._faults = faults
        self._where = where

    def __enter__(self) -> None:
        """Begin the guarded code."""

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> bool:
        """Count and swallow an exception."""
        if isinstance(error, Exception):
            self._faults.report(self._where, error)
            return True
        return False
