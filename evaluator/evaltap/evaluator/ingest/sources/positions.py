"""How far a store has read a log: the lag of each partition, and records deleted before they were read."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.ingest.sources.base import Bounds, Partition
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A partition, the offsets it holds, and the offset to continue at (None if it was never read)."""

    partition: Partition
    bounds: Bounds
    next_offset: int | None
    partly_read: bool = False
    """Whether some records after `next_offset` were read, as happens with traces of raw telemetry."""

    @property
    def name(self) -> str:
        """The partition as shown to users."""
        return f"{self.partition.topic}[{self.partition.number}]"

    @property
    def waiting(self) -> int:
        """The lag: how many offsets are still to be read."""
        start, end = self.bounds
        at = self.next_offset
        return end - (at if at is not None and start <= at <= end else start)

    @property
    def is_behind(self) -> bool:
        """Whether the log has deleted the record that was to be read next."""
        return self.next_offset is not None and self.next_offset < self.bounds.start

    @property
    def gap(self) -> str:
        """A message if records were deleted, or the partition was recreated, before being read."""
        at, (start, end) = self.next_offset, self.bounds
        if self.is_behind:
            landed = (
                "; traces in them that have landed stay as they are, the others are lost"
                if self.partly_read
                else " and were never landed"
            )
            return f"{self.name}: records {at} to {start - 1} are gone from the log{landed}"
        if at is not None and at > end:
            return recreated(self.name, at, end)
        return ""

    def text(self) -> str:
        """Return the position as text, with a line for a gap."""
        start, end = self.bounds
        read = "never read" if self.next_offset is None else f"read to {self.next_offset:,}"
        line = f"{self.name}: records {start:,} to {end:,}, {read}, {self.waiting:,} waiting"
        return f"{line}\n  GAP {self.gap}" if self.gap else line

    def data(self) -> dict[str, object]:
        return {
            "topic": self.partition.topic,
            "partition": self.partition.number,
            "start": self.bounds.start,
            "end": self.bounds.end,
            "next_offset": self.next_offset,
            "waiting": self.waiting,
            "gap": self.gap or None,
        }


def began_now(partition: Partition) -> str:
    """Return the key under which a store notes that it began after a partition's newest record."""
    return f"began_now:{partition.topic}:{partition.number}"


def recreated(name: str, landed: int, end: int) -> str:
    """Return the message about a partition that ends before the offset that has landed."""
    return (
        f"{name}: ends at {end}, before what has landed ({landed}); it was recreated and is read from its"
        " start"
    )


def log_positions(
    bounds: Mapping[Partition, Bounds],
    offsets: Mapping[Partition, int],
    partly_read: Collection[Partition] = (),
) -> list[LogPosition]:
    """Return the position in each partition of a log, in order, for a store with these offsets."""
    return [
        LogPosition(one, bounds[one], offsets.get(one), one in partly_read)
        for one in sorted(bounds)
    ]


def partly_read(store: StoreReader) -> set[Partition]:
    """Return the partitions with traces that were read beyond the offset to continue at."""
    rows = store.rows("SELECT DISTINCT topic, partition_number FROM read_traces")
    return {Partition(*row) for row in rows}


def stored_offsets(store: StoreReader) -> dict[Partition, int]:
    """Return where to continue reading each topic that was ever read into a store."""
    return {
        Partition(topic, number): offset for topic, number, offset in store.rows(LATEST_OFFSETS)
    }


LATEST_OFFSETS: Final = """
SELECT topic, partition_number, arg_max(next_offset, landed_at) AS next_offset
FROM offsets GROUP BY topic, partition_number
"""
"""The offsets to continue at: the latest, not the highest, since a recreated topic starts at 0 again."""


def moved_topics(store: Store, topics: Iterable[str], cluster_id: str | None) -> list[str]:
    """Reset the offsets of topics that were read from another cluster before; return a message for each.

    Turns that have landed already are recognised by their names and do not land twice.  Clusters with the
    same id, or without one, cannot be distinguished.
    """
    if not cluster_id:
        return []
    known: dict[str, str] = dict(
        store.rows("SELECT key, value FROM meta WHERE starts_with(key, 'cluster:')")
    )
    offsets = stored_offsets(store)
    messages = []
    for topic in topics:
        before = known.get(key := f"cluster:{topic}")
        if before == cluster_id:
            continue
        with store.transaction():
            store.execute("DELETE FROM meta WHERE key = ?", [key])
            store.append("meta", [(key, cluster_id)])
            if before is None:
                continue
            now = store.now()
            store.append("offsets", [(*one, 0, now) for one in offsets if one.topic == topic])
        messages.append(
            f"{topic}: belongs to the cluster {cluster_id}, but was landed from {before} before; it is read"
            " from its start. Give each cluster its own DuckDB file"
        )
    return messages
