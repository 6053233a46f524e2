"""The recorder of the run at hand, for plugins that a framework holds longer than one experiment."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final

from evaltap.recorder import Recorder
from evaltap.recorder.observation import Observation

_CURRENT: Final[ContextVar[Recorder | None]] = ContextVar("evaltap_recorder", default=None)


@contextmanager
def recording_to(recorder: Recorder) -> Iterator[None]:
    """Make this the recorder of what runs in the block, and of the tasks that start there."""
    before = _CURRENT.set(recorder)
    try:
        yield
    finally:
        _CURRENT.reset(before)


class CurrentRecorder:
    """Passes on to the recorder of the run; outside of any, nothing is recorded."""

    def observe(self, observation: Observation) -> None:
        if (recorder := _CURRENT.get()) is not None:
            recorder.observe(observation)

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        if (recorder := _CURRENT.get()) is not None:
            recorder.report_fault(where, error)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Do nothing: the experiment flushes its recorder."""
        return True

    def close(self, timeout_seconds: float | None = None) -> None:
        """Do nothing: the experiment closes its recorder."""


CURRENT: Final = CurrentRecorder()
