"""What the sources in the agent's process ask of a recorder.

`Recorder` is the one; a program that gathers observations in some other way can stand in its place.
"""

from collections.abc import Iterable
from typing import Any, Protocol

from evaltap.recorder.observation import Observation


class ItemSource(Protocol):
    """Reads the raw items of one source into observations, on the recorder's own thread."""

    def process(self, item: Any) -> Iterable[Observation]:
        """Take one item that was submitted and return what it says."""
        ...

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return what has become due at this time of day."""
        ...

    def close(self) -> Iterable[Observation]:
        """Return what is left."""
        ...


class Recording(Protocol):
    """Takes what sources observe; every method returns at once and none raises."""

    def observe(self, observation: Observation) -> None:
        """Take an observation."""
        ...

    def register(self, source: ItemSource) -> None:
        """Add a source of raw items."""
        ...

    def submit(self, source: ItemSource, item: Any) -> Any:
        """Take a raw item for its source."""
        ...

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault that a source swallowed."""
        ...

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait for what was taken; the exception to the rule: it takes as long as it was given."""
        ...

    def close(self, timeout_seconds: float | None = None) -> Any:
        """Stop, within the time it was given."""
        ...
