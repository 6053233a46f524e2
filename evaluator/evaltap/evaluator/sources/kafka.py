"""Read topics of a Kafka cluster: partitions are assigned, offsets come from the store.

There is no consumer group: one process owns the DuckDB file and stores its own offsets, so there is nothing
to rebalance and nothing to commit.  A partition that is added later is read from its start.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from evaltap.evaluator.sources.base import BATCH_BYTES, Bounds, Partition, SourceBatch, SourceRecord
from evaltap.evaluator.sources.positions import LogPosition, made_anew
from evaltap.evaluator.sources.unreadable import is_unreadable, unreadable_ranges
from evaltap.evaluator.topics.clients import (
    COMMITTED,
    ask_offsets,
    create_client,
    is_transient,
    poll_or_nothing,
    retry_transient,
    wire_record,
)
from evaltap.schemas.errors import InputError
from evaltap.schemas.log.kafka_settings import kafka_settings
from evaltap.schemas.log.location import KafkaLocation

T = TypeVar("T")

REFRESH_SECONDS = 30.0
"""How often new partitions are looked for."""

LOOK_SECONDS = 1.0
"""How often an idle source checks whether a topic was recreated."""

SILENT_SECONDS = 60.0
"""How long brokers may not say where a log begins or ends: leaders change, brokers are restarted."""

_LOG = logging.getLogger("evaltap.kafka")

RECORDS_PER_POLL = 250
"""What is taken from the client at a time, before the size of it is looked at."""

FETCH_BYTES = 2 << 20
"""What one answer of a broker may hold, compressed: unpacked, ten times as much waits in memory."""


class KafkaSource:
    """Records of the topics of `location`, from the oldest on unless told otherwise by `seek`.

    Of each topic all `partitions`, or those of these numbers.  With `to_end` an empty batch says whether
    there are `more` records, for which it asks the brokers.  Raises InputError when no broker answers
    within `timeout_seconds`, for partitions that a topic does not have, and with `to_end` for a topic
    that is not there; else such a topic is told of in the log of this process, and waited for.
    """

    def __init__(
        self,
        location: KafkaLocation,
        *,
        partitions: Collection[int] | None = None,
        to_end: bool = False,
        timeout_seconds: float = 10.0,
    ) -> None:
        from kafka.errors import KafkaError

        self._location = location
        self._partitions = None if partitions is None else frozenset(partitions)
        self._timeout_seconds = timeout_seconds
        self._to_end = to_end
        self._silent_since: float | None = None
        self._offsets: dict[Partition, int] = {}
        self._known: set[Partition] = set()
        self._next: dict[Partition, int] = {}
        """The offset that is to come next, by partition."""
        self._refresh_at = self._look_at = 0.0
        try:
            self._consumer = self._connect()
        except KafkaError as error:
            raise InputError(
                f"{location}: no broker answers ({error}); check address and settings"
            ) from None
        try:
            self._tell_missing()
        except InputError:
            self.close()
            raise

    def _tell_missing(self) -> None:
        if missing := self.missing_topics():
            named = f"{self._location}: no such topic: {', '.join(missing)}"
            if self._to_end:
                raise InputError(f"{named}; check the name, or record to it first")
            _LOG.warning("%s; waiting until it exists", named)

    def _connect(self) -> Any:
        """Return a client with nothing assigned; raise KafkaError when no broker answers."""
        from kafka import KafkaConsumer

        return create_client(
            KafkaConsumer,
            {
                "bootstrap_servers": list(self._location.brokers),
                "client_id": "evaltap-evaluator",
                "group_id": None,
                "enable_auto_commit": False,
                # Never `latest`: what was written before the first start would be lost in silence.
                "auto_offset_reset": "earliest",
                "isolation_level": COMMITTED,
                "bootstrap_timeout_ms": int(self._timeout_seconds * 1000),
                "fetch_max_bytes": FETCH_BYTES,
                "max_partition_fetch_bytes": FETCH_BYTES // 8,
                **kafka_settings(KafkaConsumer.DEFAULT_CONFIG),
            },
        )

    @property
    def cluster_id(self) -> str | None:
        """What the cluster calls itself; None when it does not say."""
        found = getattr(self._consumer._cluster, "cluster_id", None)
        return str(found) if found else None

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Go on at these offsets; partitions that are not named are read from their start."""
        self._offsets = dict(offsets)
        self._known.clear()
        self._refresh()

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the next records; while no broker answers there are none.

        Raises InputError when it is to be read to its end, and nobody says where that is.
        """
        if time.monotonic() >= self._refresh_at:
            self._refresh()
        if not self._known:
            time.sleep(timeout_seconds)
            self._refresh_at = 0.0
            return SourceBatch()
        records: list[SourceRecord] = []
        size = 0
        next_offsets: dict[Partition, int] = {}
        gaps: list[str] = []
        wait = int(timeout_seconds * 1000)
        # One poll of the client returns records of one fetch at most; there may be others ready.
        while True:
            try:
                found = poll_or_nothing(
                    self._consumer, wait, min(RECORDS_PER_POLL, max_records - len(records))
                )
            except Exception as error:
                if not is_unreadable(error):
                    raise
                gaps += self._pass_unreadable(error, next_offsets)
                break
            if not found:
                if not records and time.monotonic() >= self._look_at:
                    self._look_at = time.monotonic() + LOOK_SECONDS
                    gaps += self._look(next_offsets)
                break
            wait = 0
            for place, messages in found.items():
                partition = Partition(place.topic, place.partition)
                if messages[0].offset < self._next.get(partition, 0):
                    gaps.append(self._begin_anew(place, messages[0].offset, next_offsets))
                    continue
                gaps += self._gap(place, partition, messages[0].offset)
                records += [_record(partition, message) for message in messages]
                size += sum(len(message.value or b"") for message in messages)
                next_offsets[partition] = self._next[partition] = messages[-1].offset + 1
            if len(records) >= max_records or size >= BATCH_BYTES:
                break
        more = self._to_end and not records and self._is_behind()
        return SourceBatch(tuple(records), next_offsets, gaps=tuple(gaps), more=more)

    def _pass_unreadable(self, error: Exception, next_offsets: dict[Partition, int]) -> list[str]:
        """Go past what the client cannot unpack, with a new client; return what to tell of it."""
        from kafka.structs import TopicPartition

        told = []
        positions = {TopicPartition(*one): self._next[one] for one in self._known}
        for place, (first, behind) in unreadable_ranges(self._connect, positions).items():
            partition = Partition(*place)
            next_offsets[partition] = self._next[partition] = positions[place] = behind
            told.append(
                f"{place.topic}[{place.partition}]: records {first} to {behind - 1} cannot be unpacked"
                f" ({type(error).__name__}: {error}) and were never landed"
            )
        paused = self._consumer.paused()
        self._consumer.close()
        self._consumer = self._connect()
        self._consumer.assign(list(positions))
        for place, offset in positions.items():
            self._consumer.seek(place, offset)
        self._consumer.pause(*paused)
        return told

    def _look(self, next_offsets: dict[Partition, int]) -> list[str]:
        """Look where the client stands beside what was returned; return what to tell of it.

        To the client a topic that was recreated is a log that was cut: it continues at the new end.  It
        is further where there is nothing to return: marks and aborted records of transactions.
        """
        from kafka.structs import TopicPartition

        told = []
        for partition, expected in self._next.items():
            place = TopicPartition(*partition)
            position = self._consumer.position(place, timeout_ms=0)
            if position is not None and position < expected:
                told.append(self._begin_anew(place, position, next_offsets))
            elif position is not None and position > expected:
                told += self._gap(place, partition, position)
                next_offsets[partition] = self._next[partition] = position
        return told

    def _begin_anew(self, place: Any, end: int, next_offsets: dict[Partition, int]) -> str:
        """Go to the start of a partition that was recreated; return what to tell of it."""
        partition = Partition(place.topic, place.partition)
        told = made_anew(f"{place.topic}[{place.partition}]", self._next[partition], end)
        start = self._ask(self._consumer.beginning_offsets, [place])[place]
        self._consumer.seek(place, start)
        next_offsets[partition] = self._next[partition] = start
        return told

    def _gap(self, place: Any, partition: Partition, found: int) -> list[str]:
        """Return what retention deleted between what was returned last and what was found now.

        The client continues at the start of the log without a word.  Offsets are also left out where
        records were compacted or belong to transactions: then the log still holds the one before.
        """
        expected = self._next.get(partition, found)
        if found <= expected:
            return []
        start = self._ask(self._consumer.beginning_offsets, [place])[place]
        gap = LogPosition(partition, Bounds(start, max(start, found)), expected).gap
        return [gap] if gap else []

    def missing_topics(self) -> Sequence[str]:
        """Return the topics that the cluster does not have, or does not show to this user."""
        there = {place.topic for place in self._asked(self._places)}
        return [topic for topic in self._location.topics if topic not in there]

    def bounds(self) -> Mapping[Partition, Bounds]:
        """Return the offsets that each partition holds now."""
        places = self._asked(self._places)
        starts = self._ask(self._consumer.beginning_offsets, places)
        ends = self._ask(self._consumer.end_offsets, places)
        return {
            Partition(place.topic, place.partition): Bounds(starts[place], ends[place])
            for place in places
        }

    def behind(self) -> Collection[Partition]:
        """Return the partitions that hold records now which `poll` has not returned."""
        from kafka.errors import KafkaError

        try:
            return self._unread()
        except KafkaError:
            # Nobody can say: then no topic is at its end, and each has a first partition.
            return self._known.union(Partition(topic, 0) for topic in self._location.topics)

    def _is_behind(self) -> bool:
        from kafka.errors import KafkaError

        try:
            behind = bool(self._unread())
            self._silent_since = None
        except KafkaError as error:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since < SILENT_SECONDS:
                return True  # perhaps a broker is being restarted
            raise self._silence(error) from None
        return behind

    def _unread(self) -> Collection[Partition]:
        places = self._places()
        ends = ask_offsets(self._consumer.end_offsets, places)
        return [
            Partition(place.topic, place.partition)
            for place in places
            if Partition(place.topic, place.partition) not in self._known
            or (self._consumer.position(place) or 0) < ends[place]
        ]

    def _ask(
        self, ask: Callable[[Sequence[Any]], Mapping[Any, int]], places: Sequence[Any]
    ) -> Mapping[Any, int]:
        return self._asked(lambda: ask_offsets(ask, places))

    def _asked(self, ask: Callable[[], T]) -> T:
        """Return the answer, also where brokers die or choose new leaders at this moment."""
        from kafka.errors import KafkaError

        try:
            return retry_transient(ask, SILENT_SECONDS)
        except KafkaError as error:
            raise self._silence(error) from None

    def _silence(self, error: Exception) -> InputError:
        return InputError(
            f"{self._location}: no broker says where the log begins and ends ({error}); what was read is"
            " landed, start again for the rest"
        )

    def pause(self, partitions: Collection[Partition]) -> None:
        """Fetch nothing of these partitions, and of no others, from now on."""
        from kafka.structs import TopicPartition

        self._consumer.resume(*self._consumer.paused())
        self._consumer.pause(*(TopicPartition(topic, number) for topic, number in partitions))

    def close(self) -> None:
        """Leave the cluster."""
        self._consumer.close()

    def _places(self) -> list[Any]:
        """Return the partitions of the topics; raise KafkaError where nobody can be asked for them."""
        from kafka.structs import TopicPartition

        return [
            TopicPartition(topic, number)
            for topic in self._location.topics
            for number in self._numbers(topic)
        ]

    def _numbers(self, topic: str) -> Sequence[int]:
        """Return the partitions of a topic that are read; raise InputError where it lacks one."""
        there = set(self._consumer.partitions_for_topic(topic) or ())
        if self._partitions is None or not there:
            return sorted(there)
        if lacking := sorted(self._partitions - there):
            raise InputError(
                f"{self._location}: {topic} has partitions {min(there)} to {max(there)}, but not"
                f" {', '.join(map(str, lacking))}; name existing ones with --partitions"
            )
        return sorted(self._partitions)

    def _refresh(self) -> None:
        """Assign partitions that are new; known ones keep their position.

        Unless the end is waited for, brokers that do not answer have none that is new.
        """
        from kafka.errors import KafkaError

        self._refresh_at = time.monotonic() + REFRESH_SECONDS
        try:
            places = self._asked(self._places) if self._to_end else self._places()
        except KafkaError as error:
            if not is_transient(error):
                raise
            return
        fresh = [p for p in places if Partition(p.topic, p.partition) not in self._known]
        if not fresh:
            return
        self._consumer.assign(places)
        starts = self._ask(self._consumer.beginning_offsets, fresh)
        ends = self._ask(self._consumer.end_offsets, fresh)
        for place in fresh:
            partition = Partition(place.topic, place.partition)
            wanted = self._offsets.get(partition, 0)
            # Beyond the end: the topic was recreated, so its records have not been read yet.
            inside = starts[place] <= wanted <= ends[place]
            self._next[partition] = wanted if inside else starts[place]
            self._consumer.seek(place, self._next[partition])
            self._known.add(partition)


def _record(partition: Partition, message: Any) -> SourceRecord:
    time_ms = message.timestamp if message.timestamp >= 0 else None
    return SourceRecord(partition, message.offset, wire_record(message), time_ms)
