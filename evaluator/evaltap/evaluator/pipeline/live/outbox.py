"""The outbox: committed rows are published on a topic, in order, at least once.

There is no queue of pending messages: the rows themselves are the outbox, and the store keeps a cursor.  A
crash repeats at most the last batch, with the same ids.
"""

import logging
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeAlias

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.ingest.topics.errors import TopicsUnavailableError
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.store.errors import NoMemoryError
from evaltap.schemas.wire.dead_letter import encode_dead_letter, read_headers
from evaltap.schemas.wire.envelope import RecordError, WireRecord
from evaltap.schemas.wire.score import CaseRevision, encode_score

log = logging.getLogger(__name__)

ROWS_PER_WRITE = 500
LARGE_ROWS_PER_WRITE = 16
"""Used when a batch does not fit into the memory that landing leaves: a row may be as large as a record."""
LOOK_SECONDS = 0.5
AWAY_SECONDS = 2.0
WARN_SECONDS = 60.0


class Item(NamedTuple):
    """A row to publish and its position in the order of publishing."""

    at: datetime
    key: str
    record: Any
    """In the writer's form: a WireRecord for a topic.  None if the row cannot be encoded."""


class Writer(Protocol):
    """Writes records and waits until they are acknowledged."""

    def write_or_cut(self, topic: str, records: Sequence[Any]) -> list[int]:
        """Write records; return the indexes of those rejected for good.  Raises TopicsUnavailableError."""
        ...

    def close(self) -> None:
        """Close the connection."""


Reader: TypeAlias = Callable[[Store, datetime, str, int], list[Item]]
"""Returns the next rows after a time and key, up to a limit."""


class Outbox:
    """A task of the consumer that publishes the rows of `read` on a topic.

    The store keeps its progress under `name` and the topic, so a name must never change.
    """

    def __init__(
        self,
        store: Store,
        writer: Writer,
        topic: str,
        read: Reader,
        *,
        name: str,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store = store
        self._writer = writer
        self._topic = topic
        self._read = read
        self._clock = clock
        self._name = f"{name} {topic}"
        self._until: tuple[datetime, str] = (datetime.min, "")
        self._not_before = 0.0
        self._warn_at = float("-inf")
        self.idle = False
        self.published = 0

    def begin(self) -> None:
        """Continue after the last row that the store records as published."""
        if found := self._store.rows(_CURSOR, {"name": self._name}):
            self._until = found[0]

    def close(self) -> None:
        self._writer.close()

    def step(self, changed: ChangedCases | None) -> bool:
        """Publish the next rows; return whether there may be more."""
        written = self.idle and changed is not None  # there may be new rows since the last read
        if self._clock() < self._not_before and not written:
            return False
        items = self._next()
        self.idle = not items
        self._not_before = self._clock() + (LOOK_SECONDS if self.idle else 0)
        if not items:
            return False
        ready = [(one.key, one.record) for one in items if one.record is not None]
        try:
            refused = self._writer.write_or_cut(self._topic, [record for _, record in ready])
        except TopicsUnavailableError as problem:
            now = self._clock()
            self._not_before = now + AWAY_SECONDS
            if now >= self._warn_at:
                self._warn_at = now + WARN_SECONDS
                log.warning("%s; trying again", problem)
            return False
        for number in refused:
            log.warning(
                "%s: %s is larger than the topic accepts; not published",
                self._name,
                ready[number][0],
            )
        self._until = items[-1][:2]
        with self._store.transaction():
            self._store.append("outbox", [(self._name, *self._until, self._store.now())])
        self.published += len(ready) - len(refused)
        return True

    def _next(self) -> list[Item]:
        try:
            return self._read(self._store, *self._until, ROWS_PER_WRITE)
        except NoMemoryError:
            with self._store.unlimited_memory():
                return self._read(self._store, *self._until, LARGE_ROWS_PER_WRITE)


_CURSOR = """
SELECT published_until, published_key FROM outbox WHERE name = $name
ORDER BY published_until DESC, published_key DESC LIMIT 1
"""


def dead_letters(store: Store, at: datetime, key: str, limit: int) -> list[Item]:
    """Return the next dead letters as records: the original bytes, with the reason in headers."""
    items = []
    for row in store.rows(_DEAD_LETTERS, {"at": at, "key": key, "limit": limit}):
        landed_at, place, topic, partition, offset, reason, detail, key_, headers, value = row
        record = encode_dead_letter(
            WireRecord(key_, value, read_headers(headers)),
            reason=reason,
            detail=detail,
            topic=topic,
            partition=partition,
            offset=offset,
            producer_id="evaltap-evaluator",
            time=landed_at.replace(tzinfo=UTC),
        )
        items.append(Item(landed_at, place, record))
    return items


def scores(store: Store, at: datetime, key: str, limit: int) -> list[Item]:
    """Return the next scores of live runs as records, one for each row."""
    parameters = {"at": at, "key": key, "limit": limit}
    return [_score(row) for row in store.records(_SCORES, parameters)]


def _score(row: dict[str, Any]) -> Item:
    of = CaseRevision(row["app_name"], row["eval_set_id"], row["eval_id"], row["revision"])
    body = {name: row[column] for name, column in _SCORE_FIELDS.items()}
    record = None
    try:
        record = encode_score(
            of,
            body,
            event_id=row["score_id"],
            producer_id="evaltap-evaluator",
            time=row["scored_at"].replace(tzinfo=UTC),
        )
    except RecordError as error:
        log.warning("the score %s was not published: %s", row["score_id"], error)
    return Item(row["scored_at"], row["score_id"], record)


_SCORE_FIELDS = {
    "runId": "run_id",
    "metricName": "metric_name",
    "metricDigest": "metric_digest",
    "evaluatorName": "evaluator_name",
    "evaluatorVersion": "evaluator_version",
    "threshold": "threshold",
    "score": "score",
    "status": "status",
    "reason": "reason",
    "turnCount": "turn_count",
}

_DEAD_LETTERS = """
SELECT landed_at, place, topic, partition_number, record_offset, reason, detail, record_key,
       record_headers::VARCHAR, record_value
FROM (
  SELECT *, concat_ws('/', topic, lpad(partition_number::VARCHAR, 10, '0'),
                      lpad(record_offset::VARCHAR, 19, '0')) AS place
  FROM dead_letters WHERE landed_at >= $at
)
WHERE (landed_at, place) > ($at, $key)
ORDER BY landed_at, place LIMIT $limit
"""

_SCORES = """
SELECT s.* FROM scores s JOIN runs r USING (run_id)
WHERE r.kind = 'live' AND s.scored_at >= $at AND (s.scored_at, s.score_id) > ($at, $key)
ORDER BY s.scored_at, s.score_id LIMIT $limit
"""
