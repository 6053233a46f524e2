"""Landing dead letters that have become readable.

Replaying decodes a dead letter as landing does.  If it is readable now (because its schema was too new
before, or its reader was fixed), it lands and is deleted in one transaction.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from evaltap.evaluator.ingest.landing.dead_letters import FILE_PREFIX, DeadLetter
from evaltap.evaluator.ingest.landing.lander import LandedCounts, Lander
from evaltap.evaluator.ingest.landing.reading import readable
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader

LETTERS_PER_PAGE = 100
"""Dead letters held in memory during a replay; each may be as large as the topic allows."""


@dataclass(slots=True)
class Replayed:
    """The result of a replay: counts of landed records, and of those still unreadable by reason."""

    landed: LandedCounts = field(default_factory=LandedCounts)
    unreadable: Counter[str] = field(default_factory=Counter)
    of_files: int = 0


def replay(store: Store, *, reason: str = "", dry_run: bool = False) -> Replayed:
    """Land the dead letters that have become readable, and delete them."""
    found = Replayed()
    lander = Lander(store)
    ((found.of_files,),) = store.rows(_OF_FILES, {"reason": reason})
    for batch in _pages(store, reason):
        ready = []
        for letter in batch:
            if (why := readable(letter.record)) is not None:
                found.unreadable[why] += 1
            else:
                ready.append(letter)
        if dry_run:
            found.landed.records += len(ready)
        elif ready:
            names = [letter.name for letter in ready]
            found.landed.add(lander.land(_as_batch(ready), instead_of=names))
    return found


def _pages(store: StoreReader, reason: str) -> Iterator[Sequence[DeadLetter]]:
    """Yield the current dead letters of topics in pages.

    Pages follow time and position, not numbers, which change as dead letters are deleted.  One that fails
    again is stored with a later time, so it is not read twice.
    """
    ((until,),) = store.rows("SELECT max(landed_at) FROM dead_letters")
    after: tuple[Any, ...] = (datetime.min, "", 0, 0)
    while until is not None:
        names = ("at", "topic", "partition", "offset")
        parameters = {"reason": reason, "until": until, "limit": LETTERS_PER_PAGE}
        rows = store.rows(_PAGE, {**parameters, **dict(zip(names, after, strict=True))})
        if not (batch := [DeadLetter(*row) for row in rows]):
            return
        last = batch[-1]
        after = (last.landed_at, last.topic, last.partition, last.offset)
        yield batch


_OF_FILES = f"""
SELECT count(*) FROM dead_letters
WHERE ($reason = '' OR reason = $reason) AND starts_with(topic, '{FILE_PREFIX}')
"""

_PAGE = f"""
SELECT 0, topic, partition_number, record_offset, reason, detail, parked, record_key,
       record_headers::VARCHAR, record_value, landed_at
FROM dead_letters
WHERE ($reason = '' OR reason = $reason) AND NOT starts_with(topic, '{FILE_PREFIX}')
  AND landed_at <= $until
  AND (landed_at, topic, partition_number, record_offset) > ($at, $topic, $partition, $offset)
ORDER BY landed_at, topic, partition_number, record_offset LIMIT $limit
"""


def _as_batch(ready: Sequence[DeadLetter]) -> SourceBatch:
    """Return the dead letters as a batch without offsets."""
    records = (
        SourceRecord(Partition(letter.topic, letter.partition), letter.offset, letter.record)
        for letter in ready
    )
    return SourceBatch(tuple(records), {})
