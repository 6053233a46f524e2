"""A sink and workers over a real broker: the rows of one process, whatever happens to whom."""

import json
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from broker import Broker, until
from cases import RESPONSE, TRAJECTORY, make_case, make_records, make_turn
from evaltap.evaluator.job_scoring import JobScorer
from evaltap.evaluator.store import Store
from evaltap.evaluator.topics import Cluster
from evaltap.evaluator.unscored import why
from evaltap.evaluator.worker import Worker, WorkerTopics
from evaltap.evaluator.worker_group import Membership, joined
from evaltap.schemas.job import decode_result
from evaltap.schemas.record import WireRecord
from judge_server import Answer, judge_server
from scale_out import (
    ODD,
    ScaleOut,
    install_odd,
    publish,
    record_sessions,
    rubric,
    scale_out,
    sessions,
)
from topics import location, messages, write_broken_batch

pytestmark = pytest.mark.timeout(180)

# Everything but times: what workers scored must be what one process would have scored.
TABLES = {
    "scores": "* EXCLUDE (scored_at)",
    "turn_scores": "* EXCLUDE (scored_at)",
    "rubric_votes": "* EXCLUDE (scored_at)",
    "judge_calls": "* EXCLUDE (scored_at, latency_ms)",
}
EVERYTHING = "free,local_model,paid_judge"
SHORT_SESSION = {
    "EVALTAP_KAFKA_SESSION_TIMEOUT_MS": "6000",
    "EVALTAP_KAFKA_MAX_POLL_INTERVAL_MS": "6000",
}


def verdict(body: dict[str, Any]) -> Answer:
    """Judge by the agent's words, which are somewhere in the prompt."""
    score = 0 if "no idea" in str(body) else 1
    return Answer(json.dumps({"rubricScores": [{"id": "1", "score": score, "reason": "because"}]}))


def after(seconds: float) -> Callable[[dict[str, Any]], Answer]:
    """Judge like `verdict`, that much later."""

    def judge(body: dict[str, Any]) -> Answer:
        threading.Event().wait(seconds)
        return verdict(body)

    return judge


def needs_groups(broker: Broker) -> None:
    """Skip where groups of several members are not what they are in Kafka.

    noida-db takes no dead member out, and on a busy machine now and then gives one that joins nothing.
    """
    if not broker.is_apache:
        pytest.skip("the groups of noida-db are not those of Kafka in this; Kafka itself runs it")


def each_scored_once(fleet: ScaleOut, cases: int, metrics: int = 1, turns: int = 2) -> None:
    """Check that nothing was lost and nothing stored twice."""
    rows = {
        "scores": "SELECT count(*), count(DISTINCT (eval_id, revision, metric_name)) FROM scores",
        "turns": "SELECT count(*), count(DISTINCT (eval_id, invocation_id, metric_name))"
        " FROM turn_scores",
        "calls": "SELECT count(*), count(DISTINCT (eval_id, invocation_id, metric_name,"
        " sample_index)) FROM judge_calls",
    }
    latest = fleet.query("SELECT count(*) FROM latest_scores WHERE status IN ('passed', 'failed')")
    assert latest == [(cases * metrics,)]
    for what, query in rows.items():
        ((count, distinct),) = fleet.query(query)
        assert count == distinct, what
    assert fleet.query("SELECT count(*) FROM turn_scores") == [(cases * metrics * turns,)]


@pytest.mark.parametrize("send", ["local_model,paid_judge", EVERYTHING])
def test_workers_leave_the_rows_that_one_process_leaves(
    broker: Broker, tmp_path: Path, send: str
) -> None:
    record_sessions(broker, 30)
    with judge_server(verdict) as judge:
        metrics = [TRAJECTORY, RESPONSE, rubric(judge.url, samples=3)]
        with scale_out(broker, tmp_path, metrics) as fleet:
            worker = fleet.work()
            assert fleet.sink("--send", send).wait() == 1
            assert worker.stop() == 0
            assert fleet.consume(tmp_path / "one.duckdb").wait() == 1

            assert worker.told["jobs"] == 30
            for table, columns in TABLES.items():
                query = f"SELECT {columns} FROM {table} ORDER BY ALL"
                expected = fleet.query(query, tmp_path / "one.duckdb")
                assert fleet.query(query) == expected, table
                assert expected


def test_a_session_that_goes_on_is_judged_for_its_new_turns_only(
    broker: Broker, tmp_path: Path
) -> None:
    turns = make_records(sessions(3))
    with judge_server(verdict) as judge, scale_out(broker, tmp_path, [rubric(judge.url)]) as fleet:
        fleet.work()
        publish(broker.log(), turns[:3])
        assert fleet.sink().wait() == 1
        publish(broker.log(), turns[3:])
        assert fleet.sink().wait() == 1

        assert len(judge.requests) == 6
        assert fleet.query("SELECT revision, count(*) FROM scores GROUP BY 1 ORDER BY 1") == [
            (1, 3),
            (2, 3),
        ]
        each_scored_once(fleet, 3)


def test_a_case_that_fits_no_record_is_scored_by_the_sink_itself(
    broker: Broker, tmp_path: Path
) -> None:
    large = [
        make_case("large", [make_turn(f"t-{turn}", answer=f"{turn} " * 150_000)])
        for turn in range(4)
    ]
    publish(broker.log(), make_records([make_case("small"), *large]))
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        worker = fleet.work()
        fleet.sink("--send", "free").wait()
        worker.stop()

        assert worker.told["jobs"] == 1
        assert fleet.query("SELECT eval_id, turn_count FROM scores ORDER BY 1") == [
            ("large", 4),
            ("small", 1),
        ]


def test_two_workers_share_the_work(broker: Broker, tmp_path: Path) -> None:
    needs_groups(broker)
    with (
        judge_server(after(0.1)) as judge,
        scale_out(broker, tmp_path, [rubric(judge.url)]) as fleet,
    ):
        workers = [fleet.work(), fleet.work()]
        until(lambda: all("joined" in worker.output for worker in workers))
        record_sessions(broker, 20)
        assert fleet.sink().wait() == 1
        for worker in workers:
            assert worker.stop() == 0

        assert all(worker.told["jobs"] > 0 for worker in workers)

        assert sum(worker.told["jobs"] for worker in workers) == 20
        each_scored_once(fleet, 20)


def test_a_worker_that_is_killed_leaves_its_jobs_to_others(broker: Broker, tmp_path: Path) -> None:
    needs_groups(broker)
    record_sessions(broker, 20)
    with (
        judge_server(after(0.1)) as judge,
        scale_out(broker, tmp_path, [rubric(judge.url)]) as fleet,
    ):
        killed = fleet.work(environ=SHORT_SESSION)
        sink = fleet.sink()
        until(lambda: len(judge.requests) > 4)
        killed.kill()
        other = fleet.work(environ=SHORT_SESSION)

        assert sink.wait(100) == 1
        assert other.stop() == 0
        each_scored_once(fleet, 20)


def test_a_worker_that_was_frozen_and_comes_back_doubles_nothing(
    broker: Broker, tmp_path: Path
) -> None:
    needs_groups(broker)
    record_sessions(broker, 12)
    with (
        judge_server(after(0.1)) as judge,
        scale_out(broker, tmp_path, [rubric(judge.url)]) as fleet,
    ):
        zombie = fleet.work(environ=SHORT_SESSION)
        sink = fleet.sink()
        until(lambda: len(judge.requests) > 2)
        zombie.send(signal.SIGSTOP)
        other = fleet.work(environ=SHORT_SESSION)
        assert sink.wait(100) == 1
        zombie.send(signal.SIGCONT)
        results = f"{broker.log()}.results"
        until(lambda: len(messages(results)) > 12)

        again = fleet.sink()
        assert again.wait() == 1
        for worker in (zombie, other):
            assert worker.stop() == 0
        assert again.told["duplicate_results"] >= 1
        each_scored_once(fleet, 12)


@pytest.mark.slow
def test_a_judge_slower_than_the_longest_poll_interval_costs_no_rebalance(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 4, turns=1)
    with (
        judge_server(after(9)) as judge,
        scale_out(broker, tmp_path, [rubric(judge.url)]) as fleet,
    ):
        worker = fleet.work(environ=SHORT_SESSION)
        assert fleet.sink().wait(100) == 1
        assert worker.stop() == 0

        assert len(judge.requests) == 4, "asked once each"
        assert worker.told["rebalances"] <= 1, "only the one of its own leaving"
        each_scored_once(fleet, 4, turns=1)


def test_a_job_that_kills_its_workers_is_given_up_and_the_others_are_done(
    broker: Broker, tmp_path: Path
) -> None:
    needs_groups(broker)
    record_sessions(broker, 5)
    environ = install_odd(tmp_path) | SHORT_SESSION | {"ODD_KILLER": "s-3"}
    with scale_out(broker, tmp_path, [ODD]) as fleet:
        sink = fleet.sink("--send", EVERYTHING, environ=environ)
        for _ in range(3):
            # The same id: it gets its partitions back at once.
            assert fleet.work("--worker-id", "w", environ=environ).wait() == -signal.SIGKILL
        last = fleet.work("--worker-id", "w", environ=environ)

        assert sink.wait() == 3, sink.output
        assert last.stop() == 0
        assert last.told["given_up"] == 1
        rows = fleet.query("SELECT eval_id, status, reason FROM scores WHERE status <> 'passed'")
        assert [row[:2] for row in rows] == [("s-3", "error")]
        assert "crash loop" in rows[0][2]
        assert fleet.query("SELECT count(*) FROM scores WHERE status = 'passed'") == [(4,)]


def test_a_record_that_is_no_job_goes_to_the_dead_letters_and_holds_up_nobody(
    broker: Broker, tmp_path: Path
) -> None:
    jobs, letters = f"{broker.log()}.jobs", f"{broker.log()}.dlq"
    record_sessions(broker, 3)
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        name = broker.name("evaltap.cases")
        Cluster(location(jobs)).make_topics({f"{name}.jobs": 1})
        publish(jobs, [WireRecord(b"k", b"{}", ()), *make_records([make_case()])])
        worker = fleet.work()

        assert fleet.sink("--send", EVERYTHING).wait() == 1
        assert worker.stop() == 0
        assert worker.told["dead_letters"] == 2
        found = messages(letters)
        assert [one.header("dead_letter_reason") for one in found] == [
            "missing_header",
            "wrong_type",
        ]
        assert found[0].value == b"{}"
        each_scored_once(fleet, 3)


def test_jobs_that_cannot_be_unpacked_hold_up_nobody(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = f"{broker.name('evaltap.cases')}.jobs"
    record_sessions(broker, 3)
    Cluster(location(broker.log())).make_topics({jobs: 1})
    write_broken_batch(broker.address, jobs, monkeypatch)
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        worker = fleet.work()

        assert fleet.sink("--send", EVERYTHING).wait() == 1
        assert worker.stop() == 0
        assert f"{jobs}[0]: jobs 0 to 1 cannot be unpacked (ZstdError" in worker.output
        each_scored_once(fleet, 3)


def test_a_worker_with_another_version_refuses_and_its_scores_are_never_mixed_in(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 2)
    environ = install_odd(tmp_path)
    with scale_out(broker, tmp_path, [ODD]) as fleet:
        other = fleet.work(environ=environ | {"ODD_VERSION": "2"})
        sink = fleet.sink("--send", EVERYTHING, until_idle=False, environ=environ)
        until(lambda: "refused a job" in sink.output)
        assert sink.stop() == 0
        assert other.stop() == 0

        assert "has version 2 of the evaluator odd" in sink.output
        assert fleet.query("SELECT count(*) FROM scores") == [(0,)]
        ((reason,),) = fleet.query("SELECT DISTINCT reason FROM job_refusals")
        assert "install the same evaltap" in reason
        with Store(fleet.db) as store:
            answers = [answer for name in ("s-0", "s-1") for answer in why(store, name).metrics]
        assert [answer.status for answer in answers] == ["pending", "pending"]
        assert all("waiting for a worker since" in answer.reason for answer in answers)
        # The sink was stopped when it had taken one refusal, perhaps before the other.
        assert any("refused: evaltap" in answer.reason for answer in answers)

        # Taken and refused: with a worker of the right version the next ask brings the score.
        right = fleet.work(environ=environ)
        again = fleet.sink("--send", EVERYTHING, "--ask-again-seconds", "1", environ=environ)
        assert again.wait() == 0, again.output
        assert right.stop() == 0
        assert fleet.query("SELECT count(*), any_value(status) FROM scores") == [(2, "passed")]


def test_a_sink_that_is_killed_goes_on_where_its_file_stands(
    broker: Broker, tmp_path: Path
) -> None:
    record_sessions(broker, 20)
    with (
        judge_server(after(0.1)) as judge,
        scale_out(broker, tmp_path, [rubric(judge.url)]) as fleet,
    ):
        worker = fleet.work()
        for wanted in (1, 15, 30):
            sink = fleet.sink(until_idle=False)
            until(lambda wanted=wanted: len(judge.requests) >= wanted)  # type: ignore[misc]
            sink.kill()

        assert fleet.sink().wait() == 1
        assert worker.stop() == 0
        assert len(judge.requests) == 40, "no turn was judged twice"
        each_scored_once(fleet, 20)


def test_what_is_committed_is_published(broker: Broker, tmp_path: Path) -> None:
    good = make_records(sessions(3, turns=1))
    publish(broker.log(), [good[0], WireRecord(b"k", b"{", good[0].headers), *good[1:]])
    with scale_out(broker, tmp_path, [RESPONSE]) as fleet:
        topics = {"dlq": broker.name("dlq"), "scores": broker.name("scores")}
        more = ["--dlq-topic", topics["dlq"], "--scores-topic", topics["scores"]]
        for _ in range(2):  # the second finds nothing new to publish
            assert fleet.consume(tmp_path / "one.duckdb", *more).wait() == 1

        (letter,) = messages(broker.log("dlq"))
        assert (letter.key, letter.value) == (b"k", b"{")
        assert letter.header("dead_letter_reason") == "hash_mismatch"
        assert letter.header("dead_letter_offset") == "1"
        assert letter.header("ce_type") == "evaltap.case", "its own headers stay"
        scores = [json.loads(one.value or b"") for one in messages(broker.log("scores"))]
        assert {(one["evalId"], one["status"]) for one in scores} == {
            ("s-0", "failed"),
            ("s-1", "passed"),
            ("s-2", "passed"),
        }
        assert len(scores) == 3


@contextmanager
def working_here(broker: Broker, name: str) -> Iterator[Worker]:
    """Give a worker that works on a thread of the test."""
    cases = broker.name("evaltap.cases")
    topics = WorkerTopics(f"{cases}.jobs", f"{cases}.results", f"{cases}.dlq")
    member = Membership(broker.name("workers"), name, threads=2)
    place = location(broker.log())
    with joined(place, topics, member, JobScorer(None, worker=name)) as worker:
        thread = threading.Thread(target=worker.run)
        thread.start()
        try:
            yield worker
        finally:
            worker.stop()
            thread.join()


@pytest.mark.parametrize(
    "rebalances", [10, pytest.param(100, marks=[pytest.mark.slow, pytest.mark.timeout(900)])]
)
def test_workers_that_come_and_go_lose_and_double_nothing(
    broker: Broker, tmp_path: Path, rebalances: int
) -> None:
    needs_groups(broker)
    with scale_out(broker, tmp_path, [TRAJECTORY, RESPONSE]) as fleet, ExitStack() as stack:
        sink = fleet.sink("--send", EVERYTHING, until_idle=False)
        until(lambda: f"{broker.name('evaltap.cases')}.jobs" in all_topics(broker))
        stack.enter_context(working_here(broker, "staying"))
        done = 0
        for number in range(rebalances // 2):
            cases = [case | {"evalId": f"r{number}-{case['evalId']}"} for case in sessions(5)]
            publish(broker.log(), make_records(cases, producer_id=f"p-{number}"))
            with working_here(broker, f"guest-{number}") as guest:
                until(lambda guest=guest: guest.counts.assigned > 0)  # type: ignore[misc]
            done += 5

        assert sink.stop() == 0
        assert fleet.sink("--send", EVERYTHING).wait(100) == 1
        each_scored_once(fleet, done, metrics=2)
        results = [decode_result(one) for one in messages(f"{broker.log()}.results")]
        assert {one.refusal for one in results} == {""}


def all_topics(broker: Broker) -> list[str]:
    from kafka import KafkaAdminClient

    admin = KafkaAdminClient(bootstrap_servers=broker.address)
    try:
        return list(admin.list_topics())
    finally:
        admin.close()
