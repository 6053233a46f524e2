"""Joining a group of workers: the settings of the Kafka consumer, and what it tells of partitions."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from evaltap.evaluator.job_scoring import JobScorer
from evaltap.evaluator.topics import COMMITTED, CONNECT_SECONDS, Cluster, TopicWriter, made
from evaltap.evaluator.worker import JOBS_AHEAD, Worker, WorkerTopics
from evaltap.schemas.errors import InputError
from evaltap.schemas.log_location import KafkaLocation, kafka_settings

SESSION_SECONDS = 15
"""So long after its last sign of life a worker without an id of its own is taken for dead."""
NAMED_SESSION_SECONDS = 45
"""A worker with an id may come back within this time, and goes on with the partitions it had."""

METADATA_SECONDS = 5


@dataclass(frozen=True, slots=True)
class Membership:
    """Who a worker is in its group: the name it signs with, and an id where it has one of its own."""

    group: str
    name: str
    worker_id: str | None = None
    threads: int = 8


@contextmanager
def joined(
    location: KafkaLocation, topics: WorkerTopics, member: Membership, scorer: JobScorer
) -> Iterator[Worker]:
    """Give a worker that belongs to its group, and leave in good order.

    Raises InputError when no broker answers.
    """
    from kafka import ConsumerRebalanceListener

    consumer = _consumer(location, member)
    writer = TopicWriter(location, client_id="evaltap-worker")
    worker = Worker(
        consumer, writer, scorer, topics, Cluster(location).consumer,
        name=member.name, threads=member.threads,
    )  # fmt: skip

    class Listener(ConsumerRebalanceListener):  # type: ignore[misc]  # the client has no types here
        def on_partitions_revoked(self, revoked: Collection[Any]) -> None:
            worker.revoked(revoked)

        def on_partitions_assigned(self, assigned: Collection[Any]) -> None:
            worker.assigned(assigned)

        def on_partitions_lost(self, lost: Collection[Any]) -> None:
            worker.lost(lost)

    consumer.subscribe([topics.jobs], listener=Listener())
    try:
        yield worker
    finally:
        consumer.close()
        writer.close()


def _consumer(location: KafkaLocation, member: Membership) -> Any:
    from kafka import KafkaConsumer
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.errors import KafkaError

    session = NAMED_SESSION_SECONDS if member.worker_id else SESSION_SECONDS
    settings: dict[str, Any] = {
        "bootstrap_servers": list(location.brokers),
        "bootstrap_timeout_ms": int(CONNECT_SECONDS * 1000),
        "client_id": "evaltap-worker",
        "group_id": member.group,
        "group_instance_id": member.worker_id,
        "enable_auto_commit": False,
        "auto_offset_reset": "earliest",
        "isolation_level": COMMITTED,
        "max_poll_records": member.threads * JOBS_AHEAD,
        "session_timeout_ms": session * 1000,
        # A topic that was made a moment ago, or has got partitions, is seen soon.
        "metadata_max_age_ms": METADATA_SECONDS * 1000,
        # Only partitions that move are taken from their worker; the others go on undisturbed.
        "partition_assignment_strategy": [CooperativeStickyAssignor],
        **kafka_settings(KafkaConsumer.DEFAULT_CONFIG),
    }
    try:
        return made(KafkaConsumer, settings)
    except KafkaError as error:
        raise InputError(
            f"{location}: no broker answers ({error}); check address and settings"
        ) from None
