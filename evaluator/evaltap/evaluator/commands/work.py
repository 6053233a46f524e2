"""`evaltap work`: score the jobs of a sink, as one worker of many."""

import argparse
import json
import logging
import os
import socket
import sys

from evaltap.evaluator.commands.judging import add_judging, judging, worker_services
from evaltap.evaluator.commands.options import add_json, positive
from evaltap.evaluator.commands.scale_out import add_topics, kafka_location, topics_of
from evaltap.evaluator.commands.stopping import stopped_by_signals

_THREADS = 8


def configure(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command."""
    parser.epilog = (
        "example, as many as you like beside one `evaltap sink`:\n"
        "  evaltap work --log kafka://broker:9092/evaltap.cases --threads 8\n\n"
        "Keys of judges come from the environment (EVALTAP_JUDGE_API_KEY); a job holds none.\n"
        "A budget is this worker's own: with four workers, four times as much may be spent.\n"
        "exit code: 0 stopped by SIGTERM or SIGINT, 2 bad input or configuration"
    )
    add = parser.add_argument
    add_topics(parser)
    add(
        "--threads",
        type=positive,
        default=_THREADS,
        metavar="N",
        help="jobs under way (default: 8)",
    )
    add(
        "--worker-id",
        metavar="ID",
        help="an id that no other worker of the group has: restarted within 45 s it goes on with the"
        " partitions it had, and nobody else is disturbed (a StatefulSet's pod name, for example)",
    )
    add_json(parser)
    add_judging(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Work until a signal; return the exit code."""
    from evaltap.evaluator.job_scoring import JobScorer
    from evaltap.evaluator.topics import Cluster
    from evaltap.evaluator.worker_group import Membership, joined

    logging.basicConfig(format="evaltap work: %(message)s", stream=sys.stderr, level=logging.INFO)
    logging.getLogger("kafka").setLevel(logging.CRITICAL)
    location, topics = kafka_location(options), topics_of(options)
    name = options.worker_id or f"{socket.gethostname()}-{os.getpid()}"
    member = Membership(options.group, name, options.worker_id, options.threads)
    with judging(options):
        scorer = JobScorer(worker_services(options), worker=name)
        Cluster(location).make_topics(topics.partitions())
        with (
            joined(location, topics.of_worker(), member, scorer) as worker,
            stopped_by_signals(options.command, worker.stop),
        ):
            counts = worker.run()
    if options.json:
        data = {
            "worker": name,
            "jobs": counts.jobs,
            "refused": counts.refused,
            "given_up": counts.given_up,
            "dead_letters": counts.dead_letters,
            "rebalances": counts.rebalances,
        }
        print(json.dumps(data))
    else:
        print(
            f"{counts.jobs:,} jobs answered, {counts.refused:,} of them refused,"
            f" {counts.given_up:,} given up, {counts.dead_letters:,} dead letters"
        )
    return 0
