"""`evaltap sink`: land the cases of a log, have workers score them, and own the DuckDB file."""

import argparse
import logging
import os
import socket
import sys
from datetime import timedelta
from typing import TYPE_CHECKING

from evaltap.evaluator.commands.consume import Equipment, add_consuming, consume
from evaltap.evaluator.commands.judging import judging
from evaltap.evaluator.commands.options import case_scorer, cost_classes, positive
from evaltap.evaluator.commands.publishing import outboxes
from evaltap.evaluator.commands.scale_out import add_topics, kafka_location, topics_of

if TYPE_CHECKING:
    from evaltap.evaluator.fleet import Fleet
    from evaltap.evaluator.scoring import CaseScorer
    from evaltap.evaluator.store import Store
    from evaltap.evaluator.topics import TopicWriter

_SENT = "local_model,paid_judge"


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "example:\n"
        "  evaltap sink --log kafka://broker:9092/evaltap.cases --db cases.duckdb --metrics M.json\n"
        "  evaltap work --log kafka://broker:9092/evaltap.cases        # as often as you like\n\n"
        "exit code with --until-idle: 0 all passed, 1 something failed, 3 incomplete"
    )
    add = parser.add_argument
    add_topics(parser)
    add_consuming(parser, metrics_help="score with these metrics", metrics_required=True)
    add(
        "--send",
        type=cost_classes,
        default=cost_classes(_SENT),
        metavar="CLASSES",
        help="cost classes of the metrics that workers score; the sink itself scores the others, as"
        f" it lands (default: {_SENT}; free,local_model,paid_judge sends everything)",
    )
    add(
        "--max-outstanding",
        type=positive,
        default=1_000,
        metavar="N",
        help="jobs without an answer, at most (default: 1000)",
    )
    add(
        "--ask-again-seconds",
        type=positive,
        default=3_600,
        metavar="N",
        help="ask once more for a job that a worker took and did not answer for so long"
        " (default: 3600)",
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Land, ask and store until stopped; return the exit code."""
    logging.basicConfig(format="evaltap sink: %(message)s", stream=sys.stderr)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    topics_of(options)
    with judging(options):
        return consume(options, case_scorer(options), equip)


def equip(options: argparse.Namespace, store: "Store", scorer: "CaseScorer | None") -> Equipment:
    """Return what a sink does beside landing; which metrics it scores itself; what it says at the end."""
    from evaltap.evaluator.topics import Cluster, TopicWriter

    assert scorer is not None, "--metrics is required"
    sent = [i for i, one in enumerate(scorer.cost_classes()) if one in options.send]
    kept = [i for i in range(len(scorer.metrics)) if i not in sent]
    location, topics = kafka_location(options), topics_of(options)
    have = Cluster(location).make_topics(topics.partitions())
    writer = TopicWriter(location, client_id="evaltap-sink")
    options.dlq_topic = topics.dead_letters
    published = outboxes(options, store)
    if not sent:
        classes = ",".join(options.send)
        print(
            f"evaltap sink: no metric is of the cost classes that workers score ({classes}): the sink"
            " scores all of them itself; --send free,local_model,paid_judge sends them",
            file=sys.stderr,
        )
        return Equipment(kept, published)
    if have.get(topics.jobs, 1) == 1:
        print(
            f"evaltap sink: {topics.jobs} has one partition, so one worker does all the work; give it"
            " more",
            file=sys.stderr,
        )
    fleet = _fleet(options, store, scorer, sent, writer)
    return Equipment(kept, [fleet, *published], lambda: _tell(fleet))


def _fleet(
    options: argparse.Namespace,
    store: "Store",
    scorer: "CaseScorer",
    sent: list[int],
    writer: "TopicWriter",
) -> "Fleet":
    from evaltap.evaluator.asking import FleetSettings
    from evaltap.evaluator.clusters import moved_topics
    from evaltap.evaluator.fleet import Fleet
    from evaltap.evaluator.jobs import run_metrics
    from evaltap.evaluator.pending import PendingCases, References
    from evaltap.evaluator.runs import start_run
    from evaltap.evaluator.sources.kafka import KafkaSource
    from evaltap.evaluator.topics import Cluster
    from evaltap.schemas.log_location import KafkaLocation

    location, topics = kafka_location(options), topics_of(options)
    references = References(options.references) if options.references else None
    metrics = run_metrics(scorer, references)
    settings = FleetSettings(
        jobs_topic=topics.jobs,
        group=options.group,
        producer_id=f"sink-{socket.gethostname()}-{os.getpid()}",
        references=references.digest if references else "",
        max_outstanding=options.max_outstanding,
        ask_again=timedelta(seconds=options.ask_again_seconds),
    )
    results = KafkaSource(KafkaLocation(location.brokers, (topics.results,)))
    for told in moved_topics(store, [topics.results], results.cluster_id):
        print(f"evaltap sink: GAP {told}", file=sys.stderr)
    return Fleet(
        store,
        start_run(store, "live", options.log, metrics),
        PendingCases(store, metrics, references=references, only=sent),
        settings,
        scorer=scorer,
        results=results,
        writer=writer,
        cluster=Cluster(location),
    )


def _tell(fleet: "Fleet") -> dict[str, object]:
    """Say what became of the jobs; return it for `--json`."""
    counts = fleet.counts
    if fleet.outstanding:
        print(
            f"evaltap sink: {fleet.outstanding:,} jobs have no answer yet; the next start goes on"
            " with them",
            file=sys.stderr,
        )
    return {
        "jobs_asked": counts.asked,
        "jobs_scored": counts.scored,
        "jobs_outstanding": fleet.outstanding,
        "jobs_refused": counts.refused,
        "jobs_given_up": counts.given_up,
        "duplicate_results": counts.duplicates,
        "unreadable_results": counts.dead_letters,
    }
