"""The sink contract: where records leave the agent's process; and a sink in memory."""

from collections.abc import Sequence
from typing import Protocol

from evaltap.recorder.faults import SinkError
from evaltap.schemas.data import JsonObject
from evaltap.schemas.wire.record import DecodedCase, Manifest, WireRecord, decode_record

__all__ = ["MemorySink", "Sink", "SinkError"]


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


class MemorySink:
    """Keep the last `limit` records in memory, in order of arrival."""

    def __init__(self, *, limit: int = 10_000) -> None:
        self.limit = limit
        self.records: list[WireRecord] = []
        self.closed = False

    def append(self, records: Sequence[WireRecord]) -> None:
        """Append the records; the oldest are evicted beyond `limit`."""
        kept = self.records + list(records)
        self.records = kept[-self.limit :]

    def flush(self, timeout_seconds: float) -> bool:
        """Return True: there is nothing to flush."""
        return True

    def backlog(self) -> int:
        """Return 0: nothing is pending behind this sink."""
        return 0

    def close(self) -> None:
        """Mark the sink as closed; its records stay readable."""
        self.closed = True

    @property
    def cases(self) -> list[JsonObject]:
        """The recorded eval cases, decoded from their records."""
        decoded = (decode_record(record) for record in self.records)
        return [item.case for item in decoded if isinstance(item, DecodedCase)]

    @property
    def manifests(self) -> list[Manifest]:
        """The recorded manifests."""
        decoded = (decode_record(record) for record in self.records)
        return [item for item in decoded if isinstance(item, Manifest)]
