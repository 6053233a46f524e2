"""The contract of a case source: records with their positions, read again from any of them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from evaltap.schemas.wire.record import RecordError, WireRecord

BATCH_BYTES = 4 << 20
"""What the records of one batch may hold, as far as a source can tell: one record, or so much."""


class Partition(NamedTuple):
    """One ordered stream of records: a Kafka topic's partition, or a local log (partition 0)."""

    topic: str
    number: int = 0


class Bounds(NamedTuple):
    """The offsets that a partition holds now: from `start`, up to but without `end`."""

    start: int
    end: int


class SourceRecord(NamedTuple):
    """A raw record and where it lay.  Most sources decode nothing, so nothing fails before landing."""

    partition: Partition
    offset: int
    record: WireRecord
    time_ms: int | None = None
    """When the log says that it was written, in milliseconds since the epoch."""
    error: RecordError | None = None
    """Why it is a dead letter, from a source that had to look inside."""


@dataclass(frozen=True, slots=True)
class ReadTrace:
    """A trace that was read: where its telemetry lay (first and next offset), what to remember of it."""

    trace_id: str
    places: Mapping[Partition, tuple[int, int]]
    memory: str


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What one poll returned: records in the order of each partition, and where to continue.

    Store `next_offsets` and `traces` in the transaction that stores the records; a restart seeks to
    the offsets.  `more` says of a batch without records that the log is not at its end.  `gaps` tell
    what the log deleted before it could be returned.
    """

    records: tuple[SourceRecord, ...] = ()
    next_offsets: Mapping[Partition, int] = field(default_factory=dict)
    traces: tuple[ReadTrace, ...] = ()
    more: bool = False
    gaps: tuple[str, ...] = ()


class CaseSource(Protocol):
    """Read records from a log without ever changing it.  Used from one thread."""

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Go on at these offsets; a partition that is not named is read from its start.

        Called once before the first `poll`, with what the store remembers.  Partitions that the
        source does not have are ignored.
        """

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the next records, at once when there are any, else after the time-out, empty.

        A batch of large records holds fewer of them, about BATCH_BYTES.

        Raises InputError when the log has become unusable.
        """
        ...

    def bounds(self) -> Mapping[Partition, Bounds]:
        """Return what each partition holds now: for lag, for gaps, to tell when all is read."""
        ...

    def close(self) -> None:
        """Let go of files and connections; a waiting `poll` in another thread returns."""


class SteeredSource(CaseSource, Protocol):
    """A source whose partitions can be read at different speeds, and that knows when it is at the end."""

    def behind(self) -> Collection[Partition]:
        """Return the partitions that hold records now which `poll` has not returned."""
        ...

    def pause(self, partitions: Collection[Partition]) -> None:
        """Return nothing of these partitions, and of no others, from now on."""
