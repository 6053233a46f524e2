"""Joining a group of workers: the settings of the Kafka consumer, and what it tells of partitions."""

from collections.abc import Callable, Collection
from typing import Any

from evaltap.evaluator.topics import CONNECT_SECONDS
from evaltap.schemas.errors import InputError
from evaltap.schemas.log_location import KafkaLocation, kafka_settings

SESSION_SECONDS = 15
"""So long after its last sign of life a worker without an id of its own is taken for dead."""
NAMED_SESSION_SECONDS = 45
"""A worker with an id may come back within this time, and goes on with the partitions it had."""

Told = Callable[[Collection[Any]], None]


def join_group(
    location: KafkaLocation, group: str, *, worker_id: str | None, jobs_ahead: int
) -> Any:
    """Return a consumer of that group, not yet subscribed; raise InputError when no broker answers."""
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.errors import KafkaError

    session = NAMED_SESSION_SECONDS if worker_id else SESSION_SECONDS
    settings: dict[str, Any] = {
        "bootstrap_servers": list(location.brokers),
        "bootstrap_timeout_ms": int(CONNECT_SECONDS * 1000),
        "client_id": "evaltap-worker",
        "group_id": group,
        "group_instance_id": worker_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "max_poll_records": jobs_ahead,
        "session_timeout_ms": session * 1000,
        # Only partitions that move are taken from their worker; the others go on undisturbed.
        "partition_assignment_strategy": [CooperativeStickyAssignor],
        **kafka_settings(KafkaConsumer.DEFAULT_CONFIG),
    }
    try:
        return KafkaConsumer(**settings)
    except KafkaError as error:
        raise InputError(
            f"{location}: no broker answers ({error}); check address and settings"
        ) from None


def subscribe(consumer: Any, topic: str, *, revoked: Told, lost: Told) -> None:
    """Subscribe to a topic; partitions that go are told of, on the client's own thread."""
    from kafka import ConsumerRebalanceListener

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types here
        def on_partitions_revoked(self, partitions: Collection[Any]) -> None:
            revoked(partitions)

        def on_partitions_assigned(self, partitions: Collection[Any]) -> None:
            """Nothing is to be done: a partition is looked at when its first job comes."""

        def on_partitions_lost(self, partitions: Collection[Any]) -> None:
            lost(partitions)

    consumer.subscribe([topic], listener=Listener())
