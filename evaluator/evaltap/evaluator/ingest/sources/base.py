"""The protocol of a case source: it returns records with their positions and can resume from any of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from evaltap.schemas.wire.record import RecordError, WireRecord

BATCH_BYTES = 4 << 20
"""The approximate size of a batch's records; a batch with a single record may be larger."""


class Partition(NamedTuple):
    """One ordered stream of records: a Kafka topic's partition, or a local log (partition 0)."""

    topic: str
    number: int = 0


class Bounds(NamedTuple):
    """The offsets that a partition holds now: from `start` up to, but not including, `end`."""

    start: int
    end: int


class SourceRecord(NamedTuple):
    """A raw record and its position.  Most sources decode nothing, so that errors only occur in landing."""

    partition: Partition
    offset: int
    record: WireRecord
    time_ms: int | None = None
    """The log's timestamp of the record, in milliseconds since the epoch."""
    error: RecordError | None = None
    """Why the record is a dead letter, if the source had to decode it."""


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """A trace that was read: the first and next offset of its telemetry, and the state to keep."""

    trace_id: str
    places: Mapping[Partition, tuple[int, int]]
    memory: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """The result of a poll: records in the order of each partition, and where to continue.

    Store `next_offsets` and `traces` in the transaction that stores the records; a restart seeks to
    the offsets.  `more` means that a batch without records is not the end of the log.  `gaps` are
    messages about records that the log deleted before they could be returned.  `away` means that nobody
    answers who could say whether there are records.  `erased` are producers and numbers of records that
    were erased from the log, given when some may have stood before those returned.
    """

    records: tuple[SourceRecord, ...] = ()
    next_offsets: Mapping[Partition, int] = field(default_factory=dict)
    traces: tuple[ReadTrace, ...] = ()
    more: bool = False
    gaps: tuple[str, ...] = ()
    away: bool = False
    erased: tuple[tuple[str, int], ...] = ()


class CaseSource(Protocol):
    """Reads records from a log without changing it.  Used from one thread."""

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at these offsets; partitions without an offset are read from their start.

        Called once before the first `poll`, with the offsets in the store.  Partitions that the source
        does not have are ignored.
        """

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the next records as soon as there are any; an empty batch after the timeout.

        A batch holds about BATCH_BYTES, so it may have fewer than `max_records`.

        Raises InputError when the log has become unusable.
        """
        ...

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        """Return the offsets that each partition holds now, to compute lag, gaps and the end of the log.

        Raises InputError if a log that is away does not come back within a minute; at once unless it `waits`.
        """
        ...

    def close(self) -> None:
        """Close files and connections; a `poll` that waits in another thread returns."""


class SteeredSource(CaseSource, Protocol):
    """A source whose partitions can be read at different speeds, and which knows when it is at the end."""

    def behind(self) -> Collection[Partition]:
        """Return the partitions that hold records which `poll` has not returned yet."""
        ...

    def pause(self, partitions: Collection[Partition]) -> None:
        """Stop reading these partitions, and resume all others."""
