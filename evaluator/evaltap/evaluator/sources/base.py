"""The contract of a case source: records with their positions, read again from any of them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from evaltap.schemas.record import WireRecord


class Partition(NamedTuple):
    """One ordered stream of records: a Kafka topic's partition, or a local log (partition 0)."""

    topic: str
    number: int = 0


class Bounds(NamedTuple):
    """The offsets that a partition holds now: from `start`, up to but without `end`."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """A raw record and where it lay; nothing was decoded, so nothing can fail before landing."""

    partition: Partition
    offset: int
    record: WireRecord


@dataclass(frozen=True, slots=True)
class SourceBatch:
    """What one poll returned: records in the order of each partition, and where to go on.

    Store `next_offsets` in the transaction that stores the records; a restart seeks to them.
    """

    records: tuple[SourceRecord, ...] = ()
    next_offsets: Mapping[Partition, int] = field(default_factory=dict)


class CaseSource(Protocol):
    """Read records from a log without ever changing it.  Used from one thread."""

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Go on at these offsets; a partition that is not named is read from its start.

        Called once before the first `poll`, with what the store remembers.  Partitions that the
        source does not have are ignored.
        """

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the next records, at once when there are any, else after the time-out, empty.

        Raises InputError when the log has become unusable.
        """
        ...

    def bounds(self) -> Mapping[Partition, Bounds]:
        """Return what each partition holds now: for lag, for gaps, to tell when all is read."""
        ...

    def close(self) -> None:
        """Let go of files and connections; a waiting `poll` in another thread returns."""
