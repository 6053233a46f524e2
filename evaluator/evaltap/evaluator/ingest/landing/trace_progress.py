"""The progress of raw telemetry by trace, so that nothing is read twice after a restart.

A partition's offset precedes every trace that may still grow, so telemetry of traces that were already read
lies beyond it and is read again.  The rows record how far each trace was read.  A row is deleted once its
whole trace lies before the offsets.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime

from evaltap.evaluator.ingest.sources.base import Partition, ReadTrace
from evaltap.evaluator.ingest.sources.otlp_topics import Progress
from evaltap.evaluator.ingest.sources.positions import LATEST_OFFSETS
from evaltap.evaluator.store.database import Store

ROWS_BEFORE_CLEANING = 20_000


class ReadTraces:
    """Writes the rows in the transaction that lands the turns of the traces."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._written = 0

    def write(self, traces: Sequence[ReadTrace], now: datetime) -> None:
        """Add rows for traces that were read; occasionally delete rows that are no longer needed."""
        rows = [
            (trace.trace_id, *partition, first, next_offset, trace.memory, now)
            for trace in traces
            for partition, (first, next_offset) in trace.places.items()
        ]
        if not rows:
            return
        self._store.append("read_traces", rows)
        self._written += len(rows)
        if self._written >= ROWS_BEFORE_CLEANING:
            self._written = 0
            self._store.execute(_CLEAN)


def progress(store: Store) -> Progress:
    """Return the state that a source of raw telemetry needs to continue."""
    found = Progress()
    for trace_id, topic, number, first, next_offset, memory in store.rows(_ROWS):
        trace = found.traces.get(trace_id)
        places = dict(trace.places) if trace is not None else {}
        found.traces[trace_id] = ReadTrace(
            trace_id, _widened(places, Partition(topic, number), first, next_offset), memory
        )
    for topic, number, offset in store.rows(_POISON):
        found.poison.add((Partition(topic, number), offset))
    return found


def _widened(
    places: dict[Partition, tuple[int, int]], partition: Partition, first: int, next_offset: int
) -> Mapping[Partition, tuple[int, int]]:
    known = places.get(partition, (first, next_offset))
    places[partition] = (min(first, known[0]), max(next_offset, known[1]))
    return places


_BEYOND = f"""
SELECT trace_id FROM read_traces
LEFT JOIN ({LATEST_OFFSETS}) AS done USING (topic, partition_number)
WHERE read_traces.next_offset > coalesce(done.next_offset, 0)
"""

_ROWS = f"""
SELECT trace_id, topic, partition_number, first_offset, next_offset, memory FROM read_traces
WHERE trace_id IN ({_BEYOND})
ORDER BY rowid
"""

_POISON = f"""
SELECT topic, partition_number, record_offset
FROM dead_letters LEFT JOIN ({LATEST_OFFSETS}) AS done USING (topic, partition_number)
WHERE record_offset >= coalesce(done.next_offset, 0)
"""

_CLEAN = f"DELETE FROM read_traces WHERE trace_id NOT IN ({_BEYOND})"
