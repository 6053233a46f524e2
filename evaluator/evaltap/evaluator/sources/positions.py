"""How far a store has read a log: what waits on each partition, and what was deleted unread."""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from evaltap.evaluator.sources.base import Bounds, Partition
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader


@dataclass(frozen=True, slots=True)
class LogPosition:
    """A partition, what it holds, and the offset to continue at (None: it was never read)."""

    partition: Partition
    bounds: Bounds
    next_offset: int | None
    partly_read: bool = False
    """Whether some of what lies behind `next_offset` was read: traces of raw telemetry are."""

    @property
    def name(self) -> str:
        """The partition as users see it."""
        return f"{self.partition.topic}[{self.partition.number}]"

    @property
    def waiting(self) -> int:
        """How many offsets are still to be read."""
        start, end = self.bounds
        at = self.next_offset
        return end - (at if at is not None and start <= at <= end else start)

    @property
    def is_behind(self) -> bool:
        """Whether the log has deleted what was to be read next."""
        return self.next_offset is not None and self.next_offset < self.bounds.start

    @property
    def gap(self) -> str:
        """What was deleted or recreated before it was read; empty when nothing was."""
        at, (start, end) = self.next_offset, self.bounds
        if self.is_behind:
            landed = (
                "; traces in them that have landed stay as they are, the others are lost"
                if self.partly_read
                else " and were never landed"
            )
            return f"{self.name}: records {at} to {start - 1} are gone from the log{landed}"
        if at is not None and at > end:
            return made_anew(self.name, at, end)
        return ""


def made_anew(name: str, landed: int, end: int) -> str:
    """Return what to tell of a partition that ends before what was landed of it."""
    return (
        f"{name}: ends at {end}, before what has landed ({landed}); it was recreated and is read from its"
        " start"
    )


def log_positions(
    bounds: Mapping[Partition, Bounds],
    offsets: Mapping[Partition, int],
    partly_read: Collection[Partition] = (),
) -> list[LogPosition]:
    """Return the position of a store with these offsets in each partition of a log, in their order."""
    return [
        LogPosition(one, bounds[one], offsets.get(one), one in partly_read)
        for one in sorted(bounds)
    ]


def partly_read(store: StoreReader) -> set[Partition]:
    """Return the partitions of which traces were read beyond the offset to continue at."""
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
"""Where to go on.  Not the highest offset: a topic that was made anew begins at 0 again."""


def moved_topics(store: Store, topics: Iterable[str], cluster_id: str | None) -> list[str]:
    """Have topics that were read from another cluster before be read from their start; tell of each.

    What is there already is known by its names and lands no second time.  Clusters that call themselves
    the same cannot be told apart, nor one that says nothing.
    """
    if not cluster_id:
        return []
    known: dict[str, str] = dict(
        store.rows("SELECT key, value FROM meta WHERE starts_with(key, 'cluster:')")
    )
    offsets = stored_offsets(store)
    told = []
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
        told.append(
            f"{topic}: is of the cluster {cluster_id}, and what was landed of {before}; it is read from its"
            " start. Give each cluster its own DuckDB file"
        )
    return told
