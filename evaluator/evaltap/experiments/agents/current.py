"""The recorder of the run at hand, for plugins that a framework holds longer than one experiment."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from evaltap.recorder import Recorder
from evaltap.recorder.observation import Observation
from evaltap.recorder.protocols import ItemSource

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
        """Record an observation."""
        if (recorder := _CURRENT.get()) is not None:
            recorder.observe(observation)

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault of a plugin."""
        if (recorder := _CURRENT.get()) is not None:
            recorder.report_fault(where, error)

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Do nothing: the experiment flushes its recorder."""
        return True

    def close(self, timeout_seconds: float | None = None) -> None:
        """Do nothing: the experiment closes its recorder."""

    def register(self, source: ItemSource) -> None:
        """Refuse a source, which no plugin of a framework is."""
        raise NotImplementedError

    def submit(self, source: ItemSource, item: object) -> bool:
        """Refuse an item, which no plugin of a framework has."""
        raise NotImplementedError

    def feedback(self, session_id: str, **given: Any) -> str:
        """Refuse feedback, which no plugin of a framework gives."""
        raise NotImplementedError


CURRENT: Final = CurrentRecorder()
