"""Records that are larger than a topic takes hold up nobody: letters, jobs, results and scores."""

import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import duckdb
import pytest

from broker import Broker, until
from cases import NOON, RESPONSE, make_case, make_records, make_turn
from evaltap.evaluator.cli import main
from evaltap.evaluator.job_scoring import JobScorer
from evaltap.evaluator.topics import Cluster, Place, TopicsAway, TopicWriter
from evaltap.evaluator.worker import JOBS_AHEAD, MOST_UNSENT, Worker, WorkerTopics
from evaltap.schemas.dead_letter import CUT_BYTES
from evaltap.schemas.job import CaseRevision, Job, encode_job
from evaltap.schemas.record import WireRecord
from scale_out import publish, record_sessions, scale_out
from topics import location, messages

pytestmark = pytest.mark.timeout(120)

FULL = 1_048_400
"""Bytes that do not shrink, and with which a topic takes a record without headers, but none with some."""


def noise(size: int) -> bytes:
    return random.Random(size).randbytes(size)


def letters_of(broker: Broker, tmp_path: Path) -> list[WireRecord]:
    """Return what consuming a topic of junk publishes as dead letters."""
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        fleet.consume(tmp_path / "x.duckdb", "--dlq-topic", broker.name("dlq")).wait()
    return messages(broker.log("dlq"))


def test_a_letter_beyond_the_clients_own_limit_is_published_whole(
    broker: Broker, tmp_path: Path
) -> None:
    large = WireRecord(b"k", b"x" * 1_500_000)
    publish(broker.log(), [large, WireRecord(b"k", b"{")])

    found = letters_of(broker, tmp_path)

    assert [one.value for one in found] == [large.value, b"{"]


@pytest.mark.parametrize("clients_limit", ["", "500000"], ids=["by the broker", "by the client"])
def test_a_letter_that_is_refused_for_its_size_is_cut_and_says_so(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clients_limit: str
) -> None:
    publish(broker.log(), [WireRecord(b"k", noise(FULL), (("own", b"1"),)), WireRecord(b"k", b"{")])
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_REQUEST_SIZE", clients_limit)

    found = letters_of(broker, tmp_path)

    cut = next(one for one in found if one.header("dead_letter_cut_from"))
    assert len(found) == 2
    assert cut.value == noise(FULL)[:CUT_BYTES]
    assert cut.header("dead_letter_cut_from") == str(FULL)
    assert cut.header("dead_letter_reason") == "too_large"
    assert cut.header("own") == "1"


def test_a_letter_that_no_cut_makes_small_enough_holds_up_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    publish(broker.log(), [WireRecord(noise(FULL), b"{"), WireRecord(b"k", b"{")])

    found = letters_of(broker, tmp_path)

    assert [one.key for one in found] == [b"k"]


def test_oversize_junk_among_jobs_goes_to_the_dead_letters_and_holds_up_no_result(
    broker: Broker, tmp_path: Path
) -> None:
    jobs = f"{broker.log()}.jobs"
    record_sessions(broker, 3)
    Cluster(location(jobs)).make_topics({location(jobs).topics[0]: 2})
    publish(jobs, [WireRecord(b"k", b"x" * 1_500_000), WireRecord(b"k", noise(FULL))])
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        worker = fleet.work()
        assert fleet.sink("--send", "free").wait() == 1
        assert worker.stop() == 0

        assert fleet.query("SELECT count(*) FROM scores") == [(3,)]
    letters = messages(f"{broker.log()}.dlq")
    assert [len(one.value or b"") for one in letters] == [1_500_000, CUT_BYTES]


def test_dead_letters_that_do_not_fit_into_memory_together_are_published_all_the_same(
    broker: Broker, tmp_path: Path
) -> None:
    large = [WireRecord(b"k", noise(900_000 + number)) for number in range(80)]
    for first in range(0, len(large), 8):
        publish(broker.log(), large[first : first + 8])

    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        fleet.consume(tmp_path / "x.duckdb").wait()  # lands them all, and publishes none

    letters = letters_of(broker, tmp_path)

    assert [letter.value for letter in letters] == [record.value for record in large]


def test_cases_that_do_not_fit_into_memory_together_are_sent_to_workers_all_the_same(
    broker: Broker, tmp_path: Path
) -> None:
    cases = [make_case(f"s-{n}", [make_turn(answer=noise(450_000 + n).hex())]) for n in range(90)]
    for first in range(0, len(cases), 10):
        publish(broker.log(), make_records(cases[first : first + 10]))
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        land = ["consume", "--log", broker.log(), "--db", str(fleet.db), "--until-idle"]
        assert main(land) == 0  # what a sink finds at its start it reads from the file
        worker = fleet.work()

        assert fleet.sink("--send", "free").wait(100) == 0
        assert worker.stop() == 0
        assert worker.told["jobs"] == 90
        assert fleet.query("SELECT count(*) FROM scores") == [(90,)]


class Letterless(TopicWriter):
    """Writes to all topics but that of the dead letters, whose brokers are `away`."""

    away = True

    def write(self, topic: str, records: Sequence[WireRecord]) -> list[Place | None]:
        if self.away and topic.endswith(".dlq"):
            raise TopicsAway(f"{topic} is away")
        return super().write(topic, records)


@contextmanager
def letterless_worker(broker: Broker) -> Iterator[tuple[Worker, Letterless, Callable[[], Any]]]:
    """Run a worker whose dead letters cannot be written; give it, its writer and what it committed."""
    from kafka import KafkaConsumer

    cases = broker.name("evaltap.cases")
    topics = WorkerTopics(f"{cases}.jobs", f"{cases}.results", f"{cases}.dlq")
    cluster = Cluster(location(broker.log()))
    cluster.make_topics({topics.jobs: 1, topics.results: 1, topics.dead_letters: 1})
    consumer = KafkaConsumer(
        topics.jobs, bootstrap_servers=broker.address, group_id=broker.name("workers"),
        enable_auto_commit=False, auto_offset_reset="earliest",
    )  # fmt: skip
    writer = Letterless(location(broker.log()), client_id="test")
    worker = Worker(
        consumer, writer, JobScorer(None, worker="w"), topics, cluster.consumer, name="w", threads=1
    )
    thread = threading.Thread(target=worker.run)

    def stop() -> Any:
        worker.stop()
        thread.join()
        (partition,) = consumer.assignment()
        return consumer.committed(partition)

    thread.start()
    try:
        yield worker, writer, stop
    finally:
        worker.stop()
        thread.join()
        consumer.close()
        writer.close()


def test_results_do_not_wait_for_dead_letters_that_cannot_be_written(broker: Broker) -> None:
    of = [CaseRevision("app", "set", f"case-{number}", 1) for number in range(3)]
    asked = [
        encode_job(Job("run", one, (1,), (), make_case(one.eval_id)), producer_id="p", time=NOON)
        for one in of
    ]
    publish(f"{broker.log()}.jobs", [WireRecord(b"k", b"{"), *asked])

    with letterless_worker(broker) as (_, _, stop):
        until(lambda: len(messages(f"{broker.log()}.results")) == 3)
        committed = stop()

    assert not committed, "the unreadable job is left to whoever can write its letter"


def test_a_worker_takes_no_more_jobs_than_it_can_keep_the_letters_of(broker: Broker) -> None:
    publish(f"{broker.log()}.jobs", [WireRecord(b"k", b"{")] * 3 * MOST_UNSENT)

    with letterless_worker(broker) as (worker, writer, stop):
        until(lambda: worker.counts.dead_letters >= MOST_UNSENT)
        time.sleep(2)  # time to take more of them, wrongly
        assert worker.counts.dead_letters <= MOST_UNSENT + JOBS_AHEAD
        writer.away = False
        until(lambda: len(messages(f"{broker.log()}.dlq")) == 3 * MOST_UNSENT)
        committed = stop()

    assert committed == 3 * MOST_UNSENT


TALKATIVE = {
    "metricName": "external_command",
    "threshold": 1,
    "criterion": {
        "command": {
            "argv": [
                sys.executable,
                "-c",
                "import json, sys; json.load(sys.stdin);"
                'print(json.dumps({"score": 1, "reason": "x" * 1_040_000}))',
            ]
        }
    },
}


def test_a_score_with_a_reason_that_no_record_holds_is_published_with_the_beginning_of_it(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2, turns=1)
    with scale_out(broker, tmp_path, [TALKATIVE]) as fleet:
        db = tmp_path / "x.duckdb"
        consuming = fleet.consume(db, "--scores-topic", broker.name("scores"))

        assert consuming.wait() == 0, consuming.output
        reasons = fleet.query("SELECT DISTINCT reason FROM scores", db)
    published = [json.loads(one.value or b"") for one in messages(broker.log("scores"))]
    assert len(published) == 2
    for score in published:
        assert score["status"] == "passed"
        assert score["reason"].endswith("characters cut)")
        assert reasons[0][0].startswith(score["reason"].partition("…")[0])


def test_a_score_that_no_record_holds_at_all_holds_up_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2, turns=1)
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        db = tmp_path / "x.duckdb"
        fleet.consume(db).wait()
        with duckdb.connect(str(db)) as store:
            store.execute(
                "UPDATE scores SET eval_id = repeat('x', 1_000_000) WHERE eval_id = 's-0'"
            )

        consuming = fleet.consume(db, "--scores-topic", broker.name("scores"))
        consuming.wait()

    published = [json.loads(one.value or b"") for one in messages(broker.log("scores"))]
    assert "s-1" in {score["evalId"] for score in published}
    assert "is not published" in consuming.output


def test_a_workers_result_that_no_record_holds_keeps_its_scores(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2)
    with scale_out(broker, tmp_path, [TALKATIVE]) as fleet:
        worker = fleet.work()
        assert fleet.sink("--send", "free").wait() == 0
        assert worker.stop() == 0

        scores = fleet.query("SELECT status, score, reason FROM scores")
        turn_scores = fleet.query("SELECT status, reason FROM turn_scores")
    assert [score[:2] for score in scores] == [("passed", 1.0)] * 2
    assert [status for status, _ in turn_scores] == ["passed"] * 4
    assert all("characters cut)" in reason for _, reason in turn_scores)


def test_a_result_that_its_topic_refuses_is_answered_with_an_error_that_says_so(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2)
    with scale_out(broker, tmp_path, [TALKATIVE]) as fleet:
        worker = fleet.work(environ={"EVALTAP_KAFKA_MAX_REQUEST_SIZE": "4000"})
        assert fleet.sink("--send", "free").wait() == 3
        assert worker.stop() == 0

        scores = fleet.query("SELECT status, reason FROM scores")
    assert [status for status, _ in scores] == ["error"] * 2
    assert all("the result is" in reason for _, reason in scores)


def test_a_case_whose_job_the_topic_refuses_is_scored_by_the_sink_itself(
    broker: Broker, tmp_path: Path
) -> None:
    large = make_case("large", [make_turn(answer="word " * 20_000)])
    publish(broker.log(), make_records([make_case("small"), large]))
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        worker = fleet.work()
        fleet.sink("--send", "free", environ={"EVALTAP_KAFKA_MAX_REQUEST_SIZE": "50000"}).wait()
        assert worker.stop() == 0

        assert worker.told["jobs"] == 1
        assert fleet.query("SELECT eval_id FROM scores ORDER BY 1") == [("large",), ("small",)]
