"""Dead letters: the records that could not be landed, byte for byte."""

import json
from typing import Any, NamedTuple

import orjson

from evaltap.evaluator.ingest.landing.row_types import DeadLetterId
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.wire.dead_letter import read_headers, text_or_base64
from evaltap.schemas.wire.record import WireRecord

LETTERS_PER_READ = 500
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
