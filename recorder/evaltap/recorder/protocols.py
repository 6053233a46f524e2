"""What the sources in the agent's process ask of a recorder.

`Recorder` is the one; tests and other programs may implement the protocol.
"""

from collections.abc import Iterable
from typing import Protocol

from evaltap.recorder.observation import Observation


class ItemSource(Protocol):
    """Reads the raw items of one source into observations; called by the recorder's thread only.

    An exception is counted and costs only the item at hand.
    """

    def process(self, item: object) -> Iterable[Observation]:
        """Take one item that was submitted and return what it says."""
        ...

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return what has become due; called some times a second, with the time of day."""
        ...

    def close(self) -> Iterable[Observation]:
        """Return what is left; nothing is submitted after it."""
        ...


class Recording(Protocol):
    """Takes what sources observe; every method returns at once and none raises."""

    def observe(self, observation: Observation) -> None:
        """Take an observation."""
        ...

    def register(self, source: ItemSource) -> None:
        """Add a source of raw items."""
        ...

    def feedback(
        self,
        session_id: str,
        *,
        turn: str | None = None,
        positive: bool | None = None,
        score: float | None = None,
        comment: str | None = None,
        correction: str | None = None,
        name: str = "feedback",
        given_by: str | None = None,
        app_name: str | None = None,
    ) -> str:
        """Take what a user thinks of a turn; return the id of the feedback."""
        ...

    def submit(self, source: ItemSource, item: object) -> object:
        """Take a raw item for its source."""
        ...

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault that a source swallowed."""
        ...

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait for what was taken; the exception to the rule: it takes as long as it was given."""
        ...

    def close(self, timeout_seconds: float | None = None) -> object:
        """Stop, within the time it was given."""
        ...
