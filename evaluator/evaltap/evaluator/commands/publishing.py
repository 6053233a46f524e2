"""`--dlq-topic` and `--scores-topic`: what is committed is told to others, too."""

import argparse
from typing import TYPE_CHECKING

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.log_location import KafkaLocation, parse_log_location

if TYPE_CHECKING:
    from evaltap.evaluator.outbox import Outbox, Reader
    from evaltap.evaluator.store import Store

_WHERE = "a topic of the log's cluster, or kafka://host:port/topic"


def add_scores_topic(parser: argparse.ArgumentParser) -> None:
    """Add `--scores-topic`."""
    parser.add_argument(
        "--scores-topic", metavar="T", help=f"publish each stored score on {_WHERE} (default: off)"
    )


def add_dlq_topic(parser: argparse.ArgumentParser) -> None:
    """Add `--dlq-topic`."""
    parser.add_argument(
        "--dlq-topic",
        metavar="T",
        help=f"publish records that could not be read on {_WHERE} (default: off)",
    )


def outboxes(options: argparse.Namespace, store: "Store") -> "list[Outbox]":
    """Return the outboxes of the topics that were given."""
    from evaltap.evaluator.outbox import dead_letters, scores

    found: list[Outbox] = []
    for option, read in (("dlq_topic", dead_letters), ("scores_topic", scores)):
        place = getattr(options, option)
        if place:
            found.append(_outbox(f"--{option.replace('_', '-')}", place, options.log, store, read))
    return found


def _outbox(option: str, place: str, log: str, store: "Store", read: "Reader") -> "Outbox":
    from evaltap.evaluator.outbox import Outbox
    from evaltap.evaluator.topics import Cluster, TopicWriter

    location = parse_log_location(place if "://" in place else log)
    if not isinstance(location, KafkaLocation) or ("://" in place and len(location.topics) != 1):
        raise ConfigurationError(f"{option} {place}: names no cluster; expected {_WHERE}")
    topic = location.topics[0] if "://" in place else place
    read_from = parse_log_location(log)
    if (
        isinstance(read_from, KafkaLocation)
        and topic in read_from.topics
        and set(location.brokers) & set(read_from.brokers)
    ):
        raise ConfigurationError(
            f"{option} {place}: is a topic of --log, and would be read again without end; name another"
        )
    Cluster(location).make_topics({topic: 1})
    return Outbox(store, TopicWriter(location, client_id="evaltap-outbox"), topic, read)
