"""Write records to a topic, with an acknowledgement for each."""

from collections.abc import Sequence

from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

from evaltap.evaluator.ingest.topics.clients import ACK_SECONDS, CONNECT_SECONDS, MAX_REQUEST_BYTES
from evaltap.evaluator.ingest.topics.errors import TopicsUnavailableError
from evaltap.schemas.log.kafka_clients import Answer, Producer, close_producer, kafka_producer
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.dead_letter import cut_letter
from evaltap.schemas.wire.record import WireRecord


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
