"""kafka-python clients for a location's cluster: our settings, overridden by the environment's."""

from typing import Any

from evaltap.schemas.log.kafka_settings import PRODUCER_BATCH_BYTES, kafka_settings, settings_blamed
from evaltap.schemas.log.location import KafkaLocation


def kafka_client(
    kind: Any,
    location: KafkaLocation,
    *,
    client_id: str,
    connect_seconds: float,
    **settings: Any,  # validated by the client
) -> object:
    """Return a client of this kind (`KafkaConsumer`, ...); a failed constructor leaves no thread behind.

    Blocks for up to `connect_seconds`. Raises KafkaError when no broker answers, ConfigurationError
    for settings that the client rejects.
    """
    from kafka.net.compat import KafkaNetClient

    # kafka-python cannot close the network client of a constructor that raised.
    networks: list[Any] = []

    def network(**configuration: Any) -> object:
        networks.append(KafkaNetClient(**configuration))
        return networks[-1]

    try:
        with settings_blamed():
            return kind(
                **{
                    "kafka_client": network,
                    "bootstrap_servers": list(location.brokers),
                    "client_id": client_id,
                    "bootstrap_timeout_ms": int(connect_seconds * 1000),
                    **settings,
                    **kafka_settings(kind.DEFAULT_CONFIG),
                }
            )
    except Exception:
        for left in networks:
            left.close()
        raise


def kafka_producer(
    location: KafkaLocation,
    *,
    client_id: str,
    connect_seconds: float,
    ack_seconds: float,
    **settings: object,  # see kafka_client
) -> object:
    """Return a producer with the best installed compression; blocks and raises like `kafka_client`."""
    from kafka import KafkaProducer
    from kafka.codec import has_zstd

    return kafka_client(
        KafkaProducer,
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
