"""Dead letters, and landing those that have become readable.

A dead letter holds the record byte for byte.  Replaying decodes it as landing does.  If it is readable now
(because its schema was too new before, or its reader was fixed), it lands and is deleted in one transaction.
"""

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple

import orjson

from evaltap.evaluator.ingest.landing.lander import LandedCounts, Lander
from evaltap.evaluator.ingest.landing.reading import readable
from evaltap.evaluator.ingest.landing.row_types import DeadLetterId
from evaltap.evaluator.ingest.sources.base import Partition, SourceBatch, SourceRecord
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.wire.dead_letter import read_headers, text_or_base64
from evaltap.schemas.wire.record import WireRecord

LETTERS_PER_READ = 500
LETTERS_PER_PAGE = 100
"""Dead letters held in memory during a replay; each may be as large as the topic allows."""
FILE_PREFIX = "file:"


class DeadLetter(NamedTuple):
    """A record that could not be landed; `number` counts a store's dead letters from 1, oldest first."""

    number: int
    topic: str
    partition: int
    offset: int
    reason: str
    detail: str
    parked: bool
    key: bytes | None
    headers: str | None
    value: bytes | None
    landed_at: Any

    @property
    def record(self) -> WireRecord:
        """The record as it was on the log."""
        return WireRecord(self.key, self.value, read_headers(self.headers))

    @property
    def name(self) -> DeadLetterId:
        """The id of the dead letter, unique even among those at the same offset."""
        place = (self.topic, self.partition, self.offset)
        return DeadLetterId(*place, self.reason, self.detail, self.landed_at)


@dataclass(slots=True)
class Replayed:
    """The result of a replay: counts of landed records, and of those still unreadable by reason."""

    landed: LandedCounts = field(default_factory=LandedCounts)
    unreadable: Counter[str] = field(default_factory=Counter)
    of_files: int = 0


# Counted without their values, which may be large.
_NUMBERED = """
numbered AS (
  SELECT rowid AS id, reason,
         row_number() OVER (ORDER BY landed_at, topic, partition_number, record_offset) AS number
  FROM dead_letters
)
"""

_LETTERS = f"""
WITH {_NUMBERED},
chosen AS (
  SELECT id, number FROM numbered
  WHERE ($reason = '' OR reason = $reason) AND ($only = 0 OR number = $only)
  ORDER BY number LIMIT $limit
)
SELECT number, topic, partition_number, record_offset, reason, detail, parked, record_key,
       record_headers::VARCHAR, record_value, landed_at
FROM dead_letters JOIN chosen ON dead_letters.rowid = chosen.id ORDER BY number
"""


def letters(
    store: StoreReader, *, reason: str = "", only: int = 0, limit: int = LETTERS_PER_READ
) -> list[DeadLetter]:
    """Return dead letters in order, of one reason or of all; `only` selects one by its number."""
    parameters = {"reason": reason, "only": only, "limit": limit}
    return [DeadLetter(*row) for row in store.rows(_LETTERS, parameters)]


def naming(store: StoreReader, case: str, limit: int) -> list[tuple[int, str, str]]:
    """Return number, reason and detail of the first dead letters whose key or value names a case."""
    parameters = {
        "key": case.encode(),
        "end": f"/{case}".encode(),
        "name": orjson.dumps(case),
        "limit": limit,
    }
    return [(number, *rest) for number, *rest in store.rows(_NAMING, parameters)]


# Cast to text, a blob has quotes, backslashes and other bytes escaped, so containment is preserved.
_NAMING = f"""
WITH {_NUMBERED},
found AS (
  SELECT rowid AS id, reason, detail FROM dead_letters
  WHERE record_key = $key::BLOB
     OR ends_with(record_key::VARCHAR, $end::BLOB::VARCHAR)
     OR contains(record_value::VARCHAR, $name::BLOB::VARCHAR)
)
SELECT number, found.reason, detail FROM found JOIN numbered USING (id) ORDER BY number LIMIT $limit
"""


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
        batch = [DeadLetter(*row) for row in rows]
        if not batch:
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


def letter_data(letter: DeadLetter) -> dict[str, object]:
    key, value = letter.key or b"", letter.value or b""
    return {
        "number": letter.number,
        "reason": letter.reason,
        "detail": letter.detail,
        "parked": letter.parked,
        "topic": letter.topic,
        "partition": letter.partition,
        "offset": letter.offset,
        "key": key.decode("utf-8", "replace"),
        **_base64("key_base64", key),
        "headers": json.loads(letter.headers or "[]"),
        "value": value.decode("utf-8", "replace"),
        **_base64("value_base64", value),
        "landed_at": str(letter.landed_at),
    }


def _base64(name: str, value: bytes) -> dict[str, str]:
    """Return bytes that are not UTF-8 as base64 under `name`; return {} for UTF-8."""
    _, encoded = text_or_base64(value)
    return {name: encoded} if encoded else {}
