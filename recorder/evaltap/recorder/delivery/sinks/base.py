"""The sink contract: where records leave the agent's process."""

from collections.abc import Sequence
from typing import Protocol

from evaltap.recorder.faults import SinkError
from evaltap.schemas.wire.record import WireRecord

__all__ = ["Sink", "SinkError"]


class Sink(Protocol):
    """Accept batches of records, in order.

    Called only by the recorder's background thread, in the process that first appended. After a
    fork the child calls `append` on the same object, and the sink must then reinitialize itself.
    """

    def append(self, records: Sequence[WireRecord]) -> None:
        """Append all records or none.

        Returning means that the records survive the death of this process. A SinkError (or any
        exception) means that none was appended: the recorder keeps the batch, within its bounds,
        and retries. May block for as long as the disk takes, but never on a network.
        """

    def flush(self, timeout_seconds: float) -> bool:
        """Flush appended records, within the timeout; return True when none are left."""
        ...

    def backlog(self) -> int:
        """Return how many appended records still wait for a broker; called from any thread."""
        ...

    def close(self) -> None:
        """Close files and connections; called once, and no `append` follows."""
