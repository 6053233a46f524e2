"""The contract of a sink: the recorder's way out of the agent's process."""

from collections.abc import Sequence
from typing import Protocol

from evaltap.recorder.faults import SinkError
from evaltap.schemas.wire.record import WireRecord

__all__ = ["Sink", "SinkError"]


class Sink(Protocol):
    """Take batches of records, in order.

    Called by the recorder's background thread only, from the process that first appended; after
    a fork the child calls `append` on the same object and the sink must then start anew.
    """

    def append(self, records: Sequence[WireRecord]) -> None:
        """Take all records or none.

        Returning means that they survive the death of this process.  A SinkError (any exception)
        means that none was taken: the recorder keeps the batch, within its bounds, and tries
        again.  May take as long as the disk takes, never waits for a network.
        """

    def flush(self, timeout_seconds: float) -> bool:
        """Push on what was taken, as far as the time allows; True when nothing is left."""
        ...

    def backlog(self) -> int:
        """Return how many records were taken and still wait for a broker; from any thread."""
        ...

    def close(self) -> None:
        """Let go of files and connections; called once, no `append` follows."""
