"""Errors of the recorder: the tree, the guard that keeps them from the agent, and their count.

Exception
├── SinkError                a batch was not taken and is offered again; the one that users raise
├── DropCaseError            a case is not to be recorded; its reason is counted
├── RecordRefusedError       a broker will never take a record, which is kept beside the spool
└── RequestRefusedError      an OTLP request is answered with an error

What users can mend is an EvaltapError (`evaltap.schemas.errors`).  Faults are counted where they happen
and logged from the background only.  Nothing here logs, locks or allocates much on the agent's threads:
a logger that records, or a garbage collection in the middle of a lock, has hung more than one process.
"""

import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable
from types import TracebackType

from evaltap.schemas.errors import ConfigurationError

_LOG = logging.getLogger("evaltap.recorder")
LOG_INTERVAL_SECONDS = 60.0


class SinkError(Exception):
    """Report that a sink did not take a batch; it will be offered again."""


class DropCaseError(Exception):
    """Say that a case is not to be recorded; the reason is what is counted."""

    def __init__(self, reason: str, cause: Exception | None = None) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(reason)


class RecordRefusedError(Exception):
    """Report a record that the broker will never take; any other error of a producer may pass."""


class RequestRefusedError(Exception):
    """Refuse a request: HTTP status, gRPC code and the message to the sender."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class Faults:
    """Count faults from any thread; say them in the log once an interval, with their number.

    `meaning` is what they mean to the reader of the log.
    """

    def __init__(self, meaning: str = "the agent is not affected") -> None:
        self.total = 0
        self._meaning = meaning
        self._numbers = itertools.count(1)
        self._recent: deque[str] = deque(maxlen=1000)
        self._last_logged = float("-inf")

    def report(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault; keeps the kind of the error, and no text that may hold content."""
        self._recent.append(f"{where}: {_said(error)}" if error is not None else where)
        self.total = next(self._numbers)

    def log(self, now: float) -> None:
        """Write down what happened since the last time; `now` is a monotonic time in seconds."""
        if not self._recent or now - self._last_logged < LOG_INTERVAL_SECONDS:
            return
        self._last_logged = now
        seen: Counter[str] = Counter()
        while self._recent:
            seen[self._recent.popleft()] += 1
        details = ", ".join(f"{where} ({count} times)" for where, count in seen.most_common(5))
        _LOG.warning("the recorder had %d faults; %s: %s", seen.total(), self._meaning, details)


def _said(error: BaseException) -> str:
    """Return the text of an error about settings, of any other its kind."""
    return f"{error}" if isinstance(error, ConfigurationError) else type(error).__name__


class Guard:
    """Swallow and report exceptions: `with Guard(recorder.report_fault, "turn.tool"): ...`.

    Exceptions are counted and end here; what is no `Exception` (a cancelled task, an interrupt)
    belongs to the agent and passes.
    """

    __slots__ = ("_report", "_where")

    def __init__(self, report: Callable[[str, BaseException], None], where: str) -> None:
        self._report = report
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
            self._report(self._where, error)
            return True
        return False
