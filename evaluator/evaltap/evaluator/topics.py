"""Topics of a Kafka cluster that the evaluator writes: made when they are missing, written with acks.

One thread uses a writer.  The client's own faults are told apart in two ways: `TopicsAway` means that
the broker did not confirm, so nothing may be taken for written, and it can be tried again; a record that
is refused for its size has no place, and would be refused each time.
"""

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, NamedTuple, TypeVar

from evaltap.schemas.dead_letter import cut_letter
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.log_location import (
    PRODUCER_BATCH_BYTES,
    KafkaLocation,
    kafka_settings,
    settings_blamed,
)
from evaltap.schemas.record import WireRecord

T = TypeVar("T")

ACK_SECONDS = 30.0
COMMITTED = "read_committed"
"""Of records of transactions, those that were aborted were never meant for anybody."""
MAX_REQUEST_BYTES = 8 << 20
"""What the largest topics of deploy/topics.sh take; a topic that takes less says so itself."""
CONNECT_SECONDS = 10.0
ASK_AGAIN_SECONDS = 0.5


class TopicsAway(EvaltapError):
    """Report that a broker did not answer, or not as it should; try again later."""


class Place(NamedTuple):
    """Where a record lies on its topic."""

    partition: int
    offset: int


class TopicWriter:
    """Writes records to topics and returns when the broker has them; connects when first used."""

    def __init__(self, location: KafkaLocation, *, client_id: str) -> None:
        self._location = location
        self._client_id = client_id
        self._producer: Any = None

    def write(self, topic: str, records: Sequence[WireRecord]) -> list[Place | None]:
        """Return where each record lies, None for one that is larger than client or topic takes.

        Raises TopicsAway when any other is not confirmed.
        """
        places = self._write(topic, records)
        if len(records) > 1:
            # A refusal takes the neighbours in the producer with it: by itself each has its own answer.
            for number in _refused(places):
                (places[number],) = self._write(topic, [records[number]])
        return places

    def write_or_cut(self, topic: str, records: Sequence[WireRecord]) -> list[int]:
        """Write records, those dead letters cut that are too large; return which nobody takes.

        Raises TopicsAway as `write` does.
        """
        refused = _refused(self.write(topic, records))
        cut = {number: cut_letter(records[number]) for number in refused}
        shorter = {number: letter for number, letter in cut.items() if letter is not None}
        if shorter:
            places = self.write(topic, list(shorter.values()))
            written = {number for number, place in zip(shorter, places, strict=True) if place}
            refused = [number for number in refused if number not in written]
        return refused

    def _write(self, topic: str, records: Sequence[WireRecord]) -> list[Place | None]:
        """Return the places; None says that a record, or another of them, was refused for its size."""
        from kafka.errors import KafkaError

        try:
            producer = self._connected()
            answers = [_begun(producer, topic, one) for one in records]
            places = [_place(answer) for answer in answers]
        except KafkaError as error:
            # Whatever state the producer is in, the next try starts with a new one.
            self.close()
            raise TopicsAway(f"{self._location}: {topic} was not written ({error})") from None
        if None in places:
            self.close()  # an idempotent producer of kafka-python 3 writes nothing after a refusal
        return places

    def close(self) -> None:
        """Let go of the connection; what was not confirmed is the caller's to repeat."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.close(timeout=0.5)

    def _connected(self) -> Any:
        if self._producer is None:
            from kafka import KafkaProducer
            from kafka.codec import has_zstd

            self._producer = made(
                KafkaProducer,
                _settings(
                    KafkaProducer.DEFAULT_CONFIG,
                    self._location,
                    client_id=self._client_id,
                    compression_type="zstd" if has_zstd() else "gzip",
                    max_block_ms=int(CONNECT_SECONDS * 1000),
                    delivery_timeout_ms=int(ACK_SECONDS * 1000),
                    request_timeout_ms=10_000,
                    batch_size=PRODUCER_BATCH_BYTES,
                    max_request_size=MAX_REQUEST_BYTES,
                    linger_ms=2,
                ),
            )
        return self._producer


class Cluster:
    """What is asked of a cluster now and then: to make topics, and how far a group has read."""

    def __init__(self, location: KafkaLocation) -> None:
        self._location = location

    def make_topics(self, partitions: Mapping[str, int]) -> dict[str, int]:
        """Make the topics that are missing; return how many partitions each has.

        A broker that dies or elects meanwhile is no reason to give up; others may answer.
        """
        from kafka.errors import KafkaError

        try:
            return patiently(lambda: self._make_topics(partitions), CONNECT_SECONDS)
        except KafkaError as error:
            raise TopicsAway(f"{self._location}: topics cannot be made ({error})") from None

    def _make_topics(self, partitions: Mapping[str, int]) -> dict[str, int]:
        from kafka.errors import TopicAlreadyExistsError

        admin = self._admin()
        try:
            there = set(admin.list_topics())
            for topic, count in partitions.items():
                if topic not in there:
                    wanted = {topic: {"num_partitions": count, "replication_factor": -1}}
                    # Somebody else may make it at the same moment.
                    with suppress(TopicAlreadyExistsError):
                        admin.create_topics(wanted)
            described = admin.describe_topics(list(partitions))
            return {one["name"]: len(one["partitions"]) for one in described}
        finally:
            admin.close()

    def taken(self, group: str, topic: str, places: Collection[Place]) -> set[Place]:
        """Return those places that the group has read past, or that the topic does not hold (any more)."""
        from kafka.errors import KafkaError
        from kafka.structs import TopicPartition

        numbers = sorted({place.partition for place in places})
        try:
            consumer = self.consumer(group)
            try:
                partitions = [TopicPartition(topic, number) for number in numbers]
                starts = ask_offsets(consumer.beginning_offsets, partitions)
                ends = ask_offsets(consumer.end_offsets, partitions)
                waiting = {
                    one.partition: range(max(consumer.committed(one) or 0, starts[one]), ends[one])
                    for one in partitions
                }
            finally:
                consumer.close()
        except KafkaError as error:
            raise TopicsAway(f"{self._location}: {topic} cannot be read ({error})") from None
        return {place for place in places if place.offset not in waiting[place.partition]}

    def _admin(self) -> Any:
        from kafka import KafkaAdminClient
        from kafka.errors import KafkaError

        try:
            return made(
                KafkaAdminClient, _settings(KafkaAdminClient.DEFAULT_CONFIG, self._location)
            )
        except KafkaError as error:
            raise TopicsAway(
                f"{self._location}: no broker answers ({error}); check address and settings"
            ) from None

    def consumer(self, group: str | None = None) -> Any:
        """Return a client with nothing assigned; raise KafkaError when no broker answers."""
        from kafka import KafkaConsumer

        return made(
            KafkaConsumer,
            _settings(
                KafkaConsumer.DEFAULT_CONFIG,
                self._location,
                group_id=group,
                enable_auto_commit=False,
                isolation_level=COMMITTED,
            ),
        )


def _begun(producer: Any, topic: str, record: WireRecord) -> Any:
    """Begin to send a record; return the client's future, None when it is larger than that sends."""
    from kafka.errors import MessageSizeTooLargeError

    try:
        return producer.send(
            topic, key=record.key, value=record.value, headers=list(record.headers)
        )
    except MessageSizeTooLargeError:
        return None


def _place(answer: Any) -> Place | None:
    """Wait for the broker's answer; None when the record is larger than the topic takes."""
    from kafka.errors import MessageSizeTooLargeError, RecordListTooLargeError

    if answer is None:
        return None
    try:
        written = answer.get(timeout=ACK_SECONDS)
    except (MessageSizeTooLargeError, RecordListTooLargeError):
        return None
    return Place(written.partition, written.offset)


def _refused(places: Sequence[Place | None]) -> list[int]:
    return [number for number, place in enumerate(places) if place is None]


def patiently(ask: Callable[[], T], seconds: float) -> T:
    """Return the answer; what fails and can be tried again is, for so many seconds.

    Raises the KafkaError of the last try.
    """
    from kafka.errors import KafkaError

    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaError as error:
            if not error.retriable or time.monotonic() >= until:
                raise
        time.sleep(ASK_AGAIN_SECONDS)


def ask_offsets(
    ask: Callable[[Sequence[Any]], Mapping[Any, int]], places: Sequence[Any]
) -> Mapping[Any, int]:
    """Return what a client's `beginning_offsets` or `end_offsets` says of each partition.

    Raises LeaderNotAvailableError where a partition has no leader at the moment: kafka-python leaves it
    out of its own list, and then does not find it there.
    """
    from kafka.errors import LeaderNotAvailableError

    try:
        return ask(places)
    except KeyError as error:
        raise LeaderNotAvailableError(f"{error} has no leader") from None


def polled(consumer: Any, timeout_ms: int, max_records: int) -> Mapping[Any, Sequence[Any]]:
    """Return what a client's `poll` finds: nothing while a broker answers that it is to be tried again."""
    from kafka.errors import KafkaError

    try:
        found: Mapping[Any, Sequence[Any]] = consumer.poll(
            timeout_ms=timeout_ms, max_records=max_records
        )
    except KafkaError as error:
        if not error.retriable:
            raise
        time.sleep(min(ASK_AGAIN_SECONDS, timeout_ms / 1000))
        return {}
    return found


def wire_record(message: Any) -> WireRecord:
    """Return a message of the client as the record that was written."""
    headers = message.headers
    if None in chain.from_iterable(headers):
        headers = [(name, value or b"") for name, value in headers]
    return WireRecord(message.key, message.value, tuple(headers))


def made(kind: Any, settings: Mapping[str, Any]) -> Any:
    """Return a client of kafka-python; one that cannot be made leaves no thread behind.

    Raises ConfigurationError for settings that it cannot work with.
    """
    from kafka.net.compat import KafkaNetClient

    inner: list[Any] = []

    def client(**configuration: Any) -> Any:
        inner.append(KafkaNetClient(**configuration))
        return inner[-1]

    try:
        with settings_blamed():
            return kind(**{"kafka_client": client, **settings})
    except Exception:
        for left in inner:
            left.close()
        raise


def _settings(known: Mapping[str, Any], location: KafkaLocation, **given: Any) -> dict[str, Any]:
    """Return settings of a client: ours, and above them what the environment says."""
    return {
        "bootstrap_servers": list(location.brokers),
        "client_id": "evaltap-evaluator",
        "bootstrap_timeout_ms": int(CONNECT_SECONDS * 1000),
        **given,
        **kafka_settings(known),
    }
