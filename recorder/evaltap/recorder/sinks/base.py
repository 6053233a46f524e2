"""The contract of a sink: the recorder's way out of the agent's process."""

from collections.abc import Sequence
from typing import Protocol

from evaltap.schemas.record import WireRecord


class SinkError(Exception):
    """A batch was not taken.  `permanent` says that trying the same batch again is useless."""

    def __init__(self, message: str, *, permanent: bool = False) -> None:
        self.permanent = permanent
        super().__init__(message)


class Sink(Protocol):
    """Take batches of records, in order.

    Called by the recorder's background thread only, from the process that first appended; after
    a fork the child calls `append` on the same object and the sink must then start anew.
    """

    def append(self, records: Sequence[WireRecord]) -> None:
        """Take all records or none.

        Returning means that they survive the death of this process.  A SinkError means that none
        was taken: the recorder keeps the batch and tries again, or counts it as dropped when the
        error is permanent.  May take as long as the disk takes, never waits for a network.
        """

    def flush(self, timeout_seconds: float) -> bool:
        """Push on what was taken, as far as the time allows; True when nothing is left."""
        ...

    def close(self) -> None:
        """Let go of files and connections; called once, no `append` follows."""
