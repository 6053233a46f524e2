"""The recorder's exceptions, the guard that keeps them from the agent, and the fault counter.

Exception
├── SinkError                a batch was not accepted and is retried; the one that users raise
├── DropCaseError            a case must not be recorded; the reason is counted
├── RecordRefusedError       a broker permanently refuses a record, which is stored next to the spool
└── RequestRefusedError      an OTLP request is answered with an error

Errors that users can fix are EvaltapErrors (`evaltap.schemas.errors`). Faults are counted where they
occur and logged only from the background thread. Nothing here logs, locks or allocates much on the
agent's threads: a logger that records, or a garbage collection while holding a lock, has deadlocked
more than one process.
"""

import itertools
import logging
from collections import Counter, deque
from collections.abc import Callable

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.text import counted

_LOG = logging.getLogger("evaltap.recorder")
LOG_INTERVAL_SECONDS = 60.0


class SinkError(Exception):
    """Raised when a sink did not accept a batch; it will be retried.

    Its text is logged, so it must not contain what was recorded.
    """


class DropCaseError(Exception):
    """Raised to drop a case; the reason is counted."""

    def __init__(self, reason: str, cause: BaseException | None = None) -> None:
        self.reason = reason
        self.cause = cause
        super().__init__(reason)


class RecordRefusedError(Exception):
    """Raised for a record that the broker permanently refuses; other producer errors may be transient."""


class RequestRefusedError(Exception):
    """Raised to refuse a request, with HTTP status, gRPC code and the message to the sender."""

    def __init__(self, status: int, code: int, message: str) -> None:
        self.status = status
        self.code = code
        super().__init__(message)


class Faults:
    """Counts faults from any thread; logs them at intervals, with their number.

    `meaning` explains to the log's reader what they mean.
    """

    def __init__(self, meaning: str = "the agent is not affected") -> None:
        self.total = 0
        self._meaning = meaning
        self._numbers = itertools.count(1)
        self._recent: deque[str] = deque(maxlen=1000)
        self._last_logged = float("-inf")

    def report(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault; keep the error's type, but no text that may contain recorded content."""
        self._recent.append(f"{where}: {_description(error)}" if error is not None else where)
        self.total = next(self._numbers)

    def note(self, mistake: str) -> None:
        """Have a mistake of the caller logged among the faults, without counting it as one."""
        self._recent.append(mistake)

    def log(self, now: float) -> None:
        """Log the faults since the last call that logged; `now` is a monotonic time in seconds."""
        if not self._recent or now - self._last_logged < LOG_INTERVAL_SECONDS:
            return
        self._last_logged = now
        seen: Counter[str] = Counter()
        while self._recent:
            seen[self._recent.popleft()] += 1
        common = seen.most_common(5)
        details = ", ".join(f"{where} ({counted(count, 'time')})" for where, count in common)
        had = counted(seen.total(), "fault")
        _LOG.warning("the recorder had %s; %s: %s", had, self._meaning, details)


def _description(error: BaseException) -> str:
    """Return the text of an error of settings or of the log, for any other error its type."""
    said = isinstance(error, ConfigurationError | SinkError)
    return f"{error}" if said else type(error).__name__


class Guard:
    """Swallow and report exceptions: `with Guard(recorder.report_fault, "turn.tool"): ...`.

    Other BaseExceptions (a cancelled task, an interrupt) belong to the agent and propagate.
    """

    __slots__ = ("_report", "_where")

    def __init__(self, report: Callable[[str, BaseException], None], where: str) -> None:
        self._report = report
        self._where = where

    def __enter__(self) -> None:
        """Enter the guarded code."""

    def __exit__(self, _: object, error: BaseException | None, *more: object) -> bool:
        """Count and swallow an exception."""
        if isinstance(error, Exception):
            self._report(self._where, error)
            return True
        return False
