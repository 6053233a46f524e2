"""Topics of a Kafka cluster that the evaluator writes to: created if missing, written with acknowledgements.

A writer belongs to one thread.  `TopicsUnavailableError` means that the broker did not acknowledge a write:
nothing counts as written, and the caller can retry.  A record that is too large is rejected on every try.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import suppress
from typing import Generic, Protocol, TypeVar

from kafka import KafkaAdminClient
from kafka.errors import (
    KafkaError,
    KafkaTimeoutError,
    LeaderNotAvailableError,
    MessageSizeTooLargeError,
    RecordListTooLargeError,
    TopicAlreadyExistsError,
)
from kafka.structs import TopicPartition

from evaltap.evaluator.ingest.topics.errors import TopicsUnavailableError
from evaltap.schemas.log.kafka_clients import (
    Answer,
    Producer,
    close_producer,
    kafka_client,
    kafka_producer,
)
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.dead_letter import cut_letter
from evaltap.schemas.wire.record import WireRecord

T = TypeVar("T")
Place = TypeVar("Place")

ACK_SECONDS = 30.0
COMMITTED = "read_committed"
"""Records of aborted transactions are skipped: their producer withdrew them."""
MAX_REQUEST_BYTES = 8 << 20
"""The size to which a dead letter's record is cut.  A topic with a lower limit rejects the record itself."""
CONNECT_SECONDS = 10.0
ASK_AGAIN_SECONDS = 0.5


class ReadMessage(Protocol):
    """What evaltap reads of a message of kafka-python."""

    offset: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class Poller(Protocol):
    """What `poll_or_nothing` uses of `KafkaConsumer`."""

    def poll(
        self, *, timeout_ms: int, max_records: int
    ) -> Mapping[TopicPartition, Sequence[ReadMessage]]:
        """Return the next messages of the partitions that are assigned."""
        ...


def create_topics(location: KafkaLocation, partitions: Mapping[str, int]) -> None:
    """Create the missing topics, each with its number of `partitions`.

    Retries for `CONNECT_SECONDS` while brokers fail or elect leaders.
    """
    try:
        retry_transient(lambda: _create_topics(location, partitions), CONNECT_SECONDS)
    except KafkaError as error:
        raise TopicsUnavailableError(f"{location}: topics cannot be created ({error})") from None


def _create_topics(location: KafkaLocation, partitions: Mapping[str, int]) -> None:
    admin = _admin(location)
    try:
        there = set(admin.list_topics())
        for topic, count in partitions.items():
            if topic not in there:
                wanted = {topic: {"num_partitions": count, "replication_factor": -1}}
                # Another process may create it at the same moment.
                with suppress(TopicAlreadyExistsError):
                    admin.create_topics(wanted)  # pyright: ignore[reportArgumentType]  # old stubs
    finally:
        admin.close()


def _admin(location: KafkaLocation) -> KafkaAdminClient:
    try:
        return kafka_client(
            KafkaAdminClient,
            KafkaAdminClient.DEFAULT_CONFIG,
            location,
            client_id="evaltap-evaluator",
            connect_seconds=CONNECT_SECONDS,
        )
    except KafkaError as error:
        raise TopicsUnavailableError(
            f"{location}: no broker answers ({error}); check address and settings"
        ) from None


def is_transient(error: KafkaError) -> bool:
    """Return whether a request that failed with this KafkaError may succeed when it is repeated.

    kafka-python itself does not retry when the leader it remembers has left the cluster.
    """
    return bool(error.retriable) or type(error).__name__ == "UnknownBrokerIdError"


def retry_transient(ask: Callable[[], T], seconds: float) -> T:
    """Call `ask` until it succeeds, retrying transient errors for up to `seconds`; return its answer.

    Raises the last KafkaError.
    """
    until = time.monotonic() + seconds
    while True:
        try:
            return ask()
        except KafkaError as error:
            if not is_transient(error) or time.monotonic() >= until:
                raise
        time.sleep(ASK_AGAIN_SECONDS)


class Question(Generic[T]):
    """A question to brokers for whose answer a client would wait without limit."""

    def __init__(self, ask: Callable[[], T]) -> None:
        self._ask = ask
        self._answer: Future[T] | None = None
        self._lock = threading.Lock()

    def answer(self, seconds: float) -> T:
        """Return the answer; raise KafkaTimeoutError if there is none in time.

        It is then awaited further, so that brokers that are away have one question at a time.
        """
        with self._lock:
            if self._answer is None or self._answer.done():
                self._answer = Future()
                # A daemon: a process must be able to end while no broker answers.
                threading.Thread(target=self._run, args=(self._answer,), daemon=True).start()
            answer = self._answer
        try:
            return answer.result(seconds)
        except TimeoutError:
            raise KafkaTimeoutError(f"no answer within {seconds:g} s") from None

    def _run(self, answer: "Future[T]") -> None:
        try:
            answer.set_result(self._ask())
        except BaseException as error:
            answer.set_exception(error)


def ask_offsets(
    ask: Callable[[Sequence[TopicPartition]], Mapping[TopicPartition, int]],
    places: Sequence[TopicPartition],
) -> Mapping[TopicPartition, int]:
    """Return the offsets that a client's `beginning_offsets` or `end_offsets` gives for the partitions.

    Raises LeaderNotAvailableError if a partition has no leader at the moment.  kafka-python raises a
    KeyError then, since it leaves the partition out of its own list.
    """
    try:
        return ask(places)
    except KeyError as error:
        raise LeaderNotAvailableError(f"{error} has no leader") from None


def poll_or_nothing(
    consumer: Poller, timeout_ms: int, max_records: int
) -> Mapping[TopicPartition, Sequence[ReadMessage]]:
    """Return the records of a client's `poll`, none if it fails with a transient error."""
    try:
        return consumer.poll(timeout_ms=timeout_ms, max_records=max_records)
    except KafkaError as error:
        if not is_transient(error):
            raise
        time.sleep(min(ASK_AGAIN_SECONDS, timeout_ms / 1000))
        return {}


def wire_record(message: ReadMessage) -> WireRecord:
    headers = [(name, value or b"") for name, value in message.headers]
    return WireRecord(message.key, message.value, tuple(headers))


class TopicWriter:
    """Writes records to topics and waits for the broker's acknowledgements; connects on first use."""

    def __init__(self, location: KafkaLocation, *, client_id: str) -> None:
        self._location = location
        self._client_id = client_id
        self._producer: Producer | None = None

    def write(self, topic: str, records: Sequence[WireRecord]) -> list[int]:
        """Write records; return the indexes of those that are too large for the client or the topic.

        Raises TopicsUnavailableError if any other record is not acknowledged.
        """
        refused = self._write(topic, records)
        if len(records) == 1:
            return refused
        # A record that is too large fails its neighbours in the producer's batch: retry each on its own.
        return [number for number in refused if self._write(topic, [records[number]])]

    def write_or_cut(self, topic: str, records: Sequence[WireRecord]) -> list[int]:
        """Write records; cut dead letters that are too large, and return the indexes of other such records.

        Raises TopicsUnavailableError as `write` does.
        """
        refused = self.write(topic, records)
        cut = {number: cut_letter(records[number]) for number in refused}
        shorter = {number: letter for number, letter in cut.items() if letter is not None}
        if shorter:
            still = self.write(topic, list(shorter.values()))
            written = {number for at, number in enumerate(shorter) if at not in still}
            refused = [number for number in refused if number not in written]
        return refused

    def _write(self, topic: str, records: Sequence[WireRecord]) -> list[int]:
        """Write records; return the indexes of those rejected for their own size or a neighbour's."""

        try:
            producer = self._connected()
            answers = [_begun(producer, topic, one) for one in records]
            refused = [number for number, answer in enumerate(answers) if _is_refused(answer)]
        except KafkaError as error:
            # The producer's state is unknown, so the next try starts with a new one.
            self.close()
            raise TopicsUnavailableError(
                f"{self._location}: {topic} was not written ({error})"
            ) from None
        if refused:
            self.close()  # an idempotent producer of kafka-python 3 writes nothing after a refusal
        return refused

    def close(self) -> None:
        """Close the connection; the caller has to repeat unacknowledged writes."""
        producer, self._producer = self._producer, None
        if producer is not None:
            close_producer(producer)

    def _connected(self) -> Producer:
        if self._producer is None:
            self._producer = kafka_producer(
                self._location,
                client_id=self._client_id,
                connect_seconds=CONNECT_SECONDS,
                ack_seconds=ACK_SECONDS,
                max_request_size=MAX_REQUEST_BYTES,
                linger_ms=2,
            )
        return self._producer


def _begun(producer: Producer, topic: str, record: WireRecord) -> Answer | None:
    """Start sending a record; return the client's future, None if it is too large for the client."""
    try:
        return producer.send(
            topic, key=record.key, value=record.value, headers=list(record.headers)
        )
    except MessageSizeTooLargeError:
        return None


def _is_refused(answer: Answer | None) -> bool:
    """Wait for the acknowledgement; return whether the record is too large for client or topic."""
    if answer is None:
        return True
    try:
        answer.get(timeout=ACK_SECONDS)
    except (MessageSizeTooLargeError, RecordListTooLargeError):
        return True
    return False
