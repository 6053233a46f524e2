"""What `evaltap sink` and `evaltap work` share: the log, its topics and the group of the workers."""

import argparse
from dataclasses import dataclass
from typing import TYPE_CHECKING

from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.job import JOBS_SUFFIX, RESULTS_SUFFIX
from evaltap.schemas.log_location import FORM, KafkaLocation, parse_log_location

if TYPE_CHECKING:
    from evaltap.evaluator.worker import WorkerTopics

GROUP = "evaltap-workers"
JOB_PARTITIONS = 16
"""As many workers can share the jobs; a topic that exists keeps what it has."""


@dataclass(frozen=True, slots=True)
class ScaleOutTopics:
    """The topics beside those of the cases."""

    jobs: str
    results: str
    dead_letters: str

    def of_worker(self) -> "WorkerTopics":
        """Return the topics as a worker takes them."""
        from evaltap.evaluator.worker import WorkerTopics

        return WorkerTopics(self.jobs, self.results, self.dead_letters)

    def partitions(self) -> dict[str, int]:
        """Return how many partitions each topic gets when it is made."""
        return {self.jobs: JOB_PARTITIONS, self.results: 1, self.dead_letters: 1}


def add_topics(parser: argparse.ArgumentParser) -> None:
    """Add the options that sink and workers must agree on."""
    add = parser.add_argument
    add("--log", required=True, metavar="LOG", help="kafka://host:port/topic, where the cases are")
    add(
        "--group",
        default=GROUP,
        metavar="G",
        help=f"the workers' consumer group (default: {GROUP})",
    )
    add("--jobs-topic", metavar="T", help="where jobs go (default: the first topic and .jobs)")
    add(
        "--results-topic",
        metavar="T",
        help="where workers write results (default: the first topic and .results)",
    )
    add(
        "--dlq-topic",
        metavar="T",
        help="where records go that cannot be read (default: the first topic and .dlq)",
    )


def kafka_location(options: argparse.Namespace) -> KafkaLocation:
    """Return the cluster of `--log`; raise ConfigurationError for any other log."""
    location = parse_log_location(options.log)
    if not isinstance(location, KafkaLocation):
        raise ConfigurationError(
            f"--log {options.log}: a file; expected {FORM}. One machine needs no workers:"
            " evaltap consume lands and scores in one process"
        )
    return location


def topics_of(options: argparse.Namespace) -> ScaleOutTopics:
    """Return the names of the topics, given or made from the first topic of the log."""
    read = kafka_location(options).topics
    found = ScaleOutTopics(
        jobs=options.jobs_topic or read[0] + JOBS_SUFFIX,
        results=options.results_topic or read[0] + RESULTS_SUFFIX,
        dead_letters=options.dlq_topic or f"{read[0]}.dlq",
    )
    names = [*read, found.jobs, found.results, found.dead_letters]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise ConfigurationError(
            f"the topic {twice[0]} is to serve two ends; cases, jobs ({found.jobs}), results"
            f" ({found.results}) and dead letters ({found.dead_letters}) each need one of their own"
        )
    return found
