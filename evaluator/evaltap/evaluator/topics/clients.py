"""Topics of a Kafka cluster that the evaluator writes to: created if missing, written with acknowledgements.

One thread uses a writer.  `TopicsAway` means that the broker did not confirm: nothing counts as written,
and it can be tried again.  A record that is rejected for its size would be rejected every time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol, TypeVar

from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.log.kafka_clients import kafka_client
from evaltap.schemas.log.kafka_clients import made as made
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.record import WireRecord

if TYPE_CHECKING:
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.structs import TopicPartition

T = TypeVar("T")
Place = TypeVar("Place")

ACK_SECONDS = 30.0
COMMITTED = "read_committed"
"""Of records of transactions, those that were aborted were never meant for anybody."""
MAX_REQUEST_BYTES = 8 << 20
"""As much as is kept of a broken record; a topic that takes less says so itself."""
CONNECT_SECONDS = 10.0
ASK_AGAIN_SECONDS = 0.5


class ReadMessage(Protocol):
    """What evaltap reads of a message of kafka-python."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Poller(Protocol):
    """What `polled` uses of `KafkaConsumer`."""

    def poll(
        self, *, timeout_ms: int, max_records: int
    ) -> Mapping["TopicPartition", Sequence[ReadMessage]]:
        """Return the next messages of the partitions that are assigned."""
        ...


class TopicsAway(EvaltapError):
    """Report that a broker did not answer, or not as it should; try again later."""


def make_topics(location: KafkaLocation, partitions: Mapping[str, int]) -> None:
    """Make the topics that are missing, with so many partitions each.

    A broker that dies or elects meanwhile is no reason to give up; others may answer.
    """
    from kafka.errors import KafkaError

    try:
        patiently(lambda: _make_topics(location, partitions), CONNECT_SECONDS)
    except KafkaError as error:
        raise TopicsAway(f"{location}: topics cannot be created ({error})") from None


def _make_topics(location: KafkaLocation, partitions: Mapping[str, int]) -> None:
    from kafka.errors import TopicAlreadyExistsError

    admin = _admin(location)
    try:
        there = set(admin.list_topics())
        for topic, count in partitions.items():
            if topic not in there:
                wanted = {topic: {"num_partitions": count, "replication_factor": -1}}
                # Somebody else may make it at the same moment.
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(wanted)  # pyright: ignore[reportArgumentType]  # old stubs
    finally:
        admin.close()


def _admin(location: KafkaLocation) -> "KafkaAdminClient":
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError

    try:
        return kafka_client(
            KafkaAdminClient,
            KafkaAdminClient.DEFAULT_CONFIG,
            location,
            client_id="evaltap-evaluator",
            connect_seconds=CONNECT_SECONDS,
        )
    except KafkaError as error:
        raise TopicsAway(
            f"{location}: no broker answers ({error}); check address and settings"
        ) from None


def is_transient(error: "KafkaError") -> bool:
    """Return whether a KafkaError may be gone when the brokers are asked again.

    kafka-python does not retry where the leader that it remembers is no broker any more: one that died.
    """
    return bool(error.retriable) or type(error).__name__ == "UnknownBrokerIdError"


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
            if not is_transient(error) or time.monotonic() >= until:
                raise
        time.sleep(ASK_AGAIN_SECONDS)


def ask_offsets(
    ask: Callable[[Sequence["TopicPartition"]], Mapping["TopicPartition", int]],
    places: Sequence["TopicPartition"],
) -> Mapping["TopicPartition", int]:
    """Return what a client's `beginning_offsets` or `end_offsets` says of each partition.

    Raises LeaderNotAvailableError where a partition has no leader at the moment: kafka-python leaves it
    out of its own list, and then does not find it there.
    """
    from kafka.errors import LeaderNotAvailableError

    try:
        return ask(places)
    except KeyError as error:
        raise LeaderNotAvailableError(f"{error} has no leader") from None


def polled(
    consumer: Poller, timeout_ms: int, max_records: int
) -> Mapping["TopicPartition", Sequence[ReadMessage]]:
    """Return what a client's `poll` finds: nothing while a broker answers that it is to be tried again."""
    from kafka.errors import KafkaError

    try:
        return consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
    except KafkaError as error:
        if not is_transient(error):
            raise
        time.sleep(min(ASK_AGAIN_SECONDS, timeout_ms / 1000))
        return {}


def wire_record(message: ReadMessage) -> WireRecord:
    """Return a message of the client as the record that was written."""
    headers = [(name, value or b"") for name, value in message.headers]
    return WireRecord(message.key, message.value, tuple(headers))
