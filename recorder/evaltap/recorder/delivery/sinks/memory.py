"""A sink that keeps its records in a list: for tests and notebooks."""

from collections.abc import Sequence

from evaltap.schemas.data import JsonObject
from evaltap.schemas.wire.record import DecodedCase, Manifest, WireRecord, decode_record


class MemorySink:
    """Keep the last `limit` records in memory, in the order in which they were taken."""

    def __init__(self, *, limit: int = 10_000) -> None:
        self.limit = limit
        self.records: list[WireRecord] = []
        self.closed = False

    def append(self, records: Sequence[WireRecord]) -> None:
        """Take the records; the oldest go once there are more than `limit`."""
        kept = self.records + list(records)
        self.records = kept[-self.limit :]

    def flush(self, timeout_seconds: float) -> bool:
        """Have nothing to push on."""
        return True

    def backlog(self) -> int:
        """Return 0: there is nothing behind this sink."""
        return 0

    def close(self) -> None:
        """Remember that it was closed; the records stay readable."""
        self.closed = True

    @property
    def cases(self) -> list[JsonObject]:
        """The eval cases taken so far, decoded from their records."""
        decoded = (decode_record(record) for record in self.records)
        return [item.case for item in decoded if isinstance(item, DecodedCase)]

    @property
    def manifests(self) -> list[Manifest]:
        """The manifests taken so far."""
        decoded = (decode_record(record) for record in self.records)
        return [item for item in decoded if isinstance(item, Manifest)]
