"""A sink that stores its records in a list, for tests and notebooks."""

from collections.abc import Sequence

from evaltap.schemas.data import JsonObject
from evaltap.schemas.wire.record import DecodedCase, Manifest, WireRecord, decode_record


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
