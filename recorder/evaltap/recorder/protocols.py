"""What sources in the agent's process require of a recorder.

`Recorder` implements it; tests and other programs may, too.
"""

from collections.abc import Iterable, Sequence
from typing import Protocol

from evaltap.recorder.observation import Observation


class ItemSource(Protocol):
    """Reads the raw items of one source into observations; called only by the recorder's thread.

    An exception is counted and costs only the current item.
    """

    def process(self, item: object) -> Iterable[Observation]:
        """Process one submitted item and return its observations."""
        ...

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return the observations that are due; called several times a second, with the current time."""
        ...

    def close(self) -> Iterable[Observation]:
        """Return the remaining observations; nothing is submitted afterwards."""
        ...

    def abandon(self, items: Sequence[object]) -> int:
        """Discard these unprocessed items and everything held; return how many turns are lost with them.

        Called when no time is left to write them; in a process that hangs, by another thread.
        """
        ...


class Observing(Protocol):
    """Accepts observations of agent runs, as plugins make them; every method returns at once, none raises."""

    def observe(self, observation: Observation) -> None:
        """Record an observation."""

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault that a source caught."""

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until everything is written, up to the timeout; the one method that blocks."""
        ...

    def close(self, timeout_seconds: float | None = None) -> object:
        """Stop, within the timeout."""


class Recording(Observing, Protocol):
    """Also accepts raw items, for sources that read them on the recorder's thread, and feedback."""

    def register(self, source: ItemSource) -> None:
        """Add a source of raw items."""

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
        """Record a user's feedback on a turn; return the feedback id."""
        ...

    def submit(self, source: ItemSource, item: object) -> object:
        """Queue a raw item for its source."""
