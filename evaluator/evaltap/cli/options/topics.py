"""`--dlq-topic` and `--scores-topic`: publish committed rows."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log.location import KafkaLocation, parse_log_location

if TYPE_CHECKING:
    from evaltap.evaluator.pipeline.live.outbox import Outbox, Reader
    from evaltap.evaluator.store.database import Store


@dataclass(frozen=True, slots=True)
class PublishOptions:
    """Where dead letters and scores are published; `log` names the cluster for a bare topic."""

    log: str
    dlq_topic: str | None
    scores_topic: str | None


_WHERE = "a topic of the log's cluster, or kafka://host:port/topic"


def add_scores_topic(parser: argparse.ArgumentParser) -> None:
    """Add `--scores-topic`."""
    parser.add_argument(
        "--scores-topic", metavar="T", help=f"publish each stored score to {_WHERE} (default: off)"
    )


def add_dlq_topic(parser: argparse.ArgumentParser) -> None:
    """Add `--dlq-topic`."""
    parser.add_argument(
        "--dlq-topic",
        metavar="T",
        help=f"publish records that could not be read to {_WHERE} (default: off)",
    )


def outboxes(options: PublishOptions, store: "Store") -> "list[Outbox]":
    """Return the outboxes of the given topics."""
    from evaltap.evaluator.pipeline.live.outbox import dead_letters, scores

    found: list[Outbox] = []
    if options.dlq_topic:
        found.append(
            _outbox(
                "--dlq-topic", options.dlq_topic, options.log, store, dead_letters, "dead_letters"
            )
        )
    if options.scores_topic:
        found.append(
            _outbox("--scores-topic", options.scores_topic, options.log, store, scores, "scores")
        )
    return found


def _outbox(
    option: str, place: str, log: str, store: "Store", read: "Reader", name: str
) -> "Outbox":
    from evaltap.evaluator.ingest.topics.clients import create_topics
    from evaltap.evaluator.ingest.topics.writer import TopicWriter
    from evaltap.evaluator.pipeline.live.outbox import Outbox

    location = parse_log_location(place if "://" in place else log)
    if not isinstance(location, KafkaLocation) or ("://" in place and len(location.topics) != 1):
        raise ConfigurationError(f"{option} {place}: names no Kafka cluster; expected {_WHERE}")
    topic = location.topics[0] if "://" in place else place
    read_from = parse_log_location(log)
    if (
        isinstance(read_from, KafkaLocation)
        and topic in read_from.topics
        and set(location.brokers) & set(read_from.brokers)
    ):
        raise ConfigurationError(
            f"{option} {place}: this topic is part of --log, so its records would be consumed in a loop;"
            " name another"
        )
    create_topics(location, {topic: 1})
    return Outbox(store, TopicWriter(location, client_id="evaltap-outbox"), topic, read, name=name)
