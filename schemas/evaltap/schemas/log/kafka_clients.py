"""kafka-python clients for a location's cluster: our settings, overridden by the environment's."""

from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar

from evaltap.schemas.log.kafka_settings import PRODUCER_BATCH_BYTES, kafka_settings, settings_blamed
from evaltap.schemas.log.location import KafkaLocation

Client = TypeVar("Client")
CLOSE_SECONDS = 0.5


def kafka_client(
    kind: Callable[..., Client],
    known: Mapping[str, object],
    location: KafkaLocation,
    *,
    client_id: str,
    connect_seconds: float,
    **settings: object,
) -> Client:
    """Return a client (`KafkaConsumer`, ...) for a cluster; `known` are the settings that it has.

    Blocks for up to `connect_seconds`; a failed constructor leaves no thread behind.  Raises KafkaError when
    no broker answers, ConfigurationError for settings that the client rejects.
    """
    from kafka.net.compat import KafkaNetClient

    # kafka-python cannot close the network client of a constructor that raised.
    networks: list[KafkaNetClient] = []

    def network(**configuration: object) -> KafkaNetClient:
        networks.append(KafkaNetClient(**configuration))
        return networks[-1]

    given = {
        "kafka_client": network,
        "bootstrap_servers": list(location.brokers),
        "client_id": client_id,
        "bootstrap_timeout_ms": int(connect_seconds * 1000),
        **settings,
        **kafka_settings(known),
    }
    try:
        with settings_blamed():
            return kind(**given)
    except Exception:
        for left in networks:
            left.close()
        raise


class Answer(Protocol):
    """The broker's answer to a record, which may not have come yet."""

    def get(self, timeout: float) -> object:
        """Wait for the answer; raises KafkaError for a refusal, and when none comes in time."""

    def failed(self) -> bool:
        """Return whether the answer is a refusal."""
        ...


class Producer(Protocol):
    """What evaltap uses of `KafkaProducer`."""

    def send(
        self,
        topic: str,
        *,
        key: bytes | None,
        value: bytes | None,
        headers: list[tuple[str, bytes]],
    ) -> Answer:
        """Begin to send a record; raises KafkaError."""
        ...

    def close(self, timeout: float) -> None:
        """Stop; raises KafkaTimeoutError, and goes on, when records are still unsent at the timeout."""


def kafka_producer(
    location: KafkaLocation,
    *,
    client_id: str,
    connect_seconds: float,
    ack_seconds: float,
    **settings: object,
) -> Producer:
    """Return a producer with the best installed compression; blocks and raises like `kafka_client`."""
    from kafka import KafkaProducer
    from kafka.codec import has_zstd

    producer: Producer = kafka_client(
        KafkaProducer,
        KafkaProducer.DEFAULT_CONFIG,
        location,
        client_id=client_id,
        connect_seconds=connect_seconds,
        compression_type="zstd" if has_zstd() else "gzip",
        batch_size=PRODUCER_BATCH_BYTES,
        max_block_ms=int(connect_seconds * 1000),
        delivery_timeout_ms=int(ack_seconds * 1000),
        request_timeout_ms=10_000,
        **settings,
    )
    return producer


def close_producer(producer: Producer) -> None:
    """Stop a producer within about a second; what it has not sent by then, it never sends."""
    from kafka.errors import KafkaTimeoutError

    try:
        producer.close(timeout=CLOSE_SECONDS)
    except KafkaTimeoutError:
        # kafka-python 3 gives up here before it stops its sender, which would go on sending.
        unstopped: Any = producer
        unstopped._sender.force_close()
        producer.close(timeout=CLOSE_SECONDS)
