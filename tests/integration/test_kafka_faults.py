"""Kafka over a bad network: the agent does not wait, every turn is accounted for and lands once."""

import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest

from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.recorder.delivery.sinks.kafka import KafkaSink, TopicProducer
from evaltap.recorder.delivery.spool.spool import WINDOW_RECORDS
from evaltap.schemas.log.location import KafkaClientName
from support.builders.cases import make_records
from support.builders.topics import cases, consume, landed, location, messages, record, turns
from support.builders.waiting import wait_for
from support.servers.broker import Broker, GivenCluster
from support.servers.faulty_network import (
    FETCH,
    METADATA,
    PRODUCE,
    Fate,
    Proxy,
    Rule,
    Way,
    acknowledgements_lost,
    black_hole,
    proxied,
    well,
)

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give a silent broker up after a second, where users' clients wait for ten."""
    for name in ("REQUEST_TIMEOUT_MS", "BOOTSTRAP_TIMEOUT_MS", "MAX_BLOCK_MS"):
        monkeypatch.setenv(f"EVALTAP_KAFKA_{name}", "1000")
    monkeypatch.setenv("EVALTAP_KAFKA_DELIVERY_TIMEOUT_MS", "2000")


@pytest.fixture
def network(broker: Broker) -> Iterator[Proxy]:
    if isinstance(broker, GivenCluster):
        pytest.skip("a given cluster is not put behind a bad network")
    with proxied(broker.port) as proxy:
        yield proxy


@pytest.fixture
def url(broker: Broker, network: Proxy) -> str:
    """The test's log by way of the network."""
    return broker.log().replace(broker.address, network.address)


def the_first(count: int, way: Way, kind: int, fate: Fate) -> Rule:
    """Give so many messages of a kind a fate, and hand everything else on."""
    left = itertools.repeat(fate, count)

    def rule(found_way: Way, found_kind: int) -> Fate:
        return next(left, Fate.PASS) if (found_way, found_kind) == (way, kind) else Fate.PASS

    return rule


@pytest.mark.slow
def test_a_broker_that_never_answers_keeps_nobody_waiting(
    broker: Broker, network: Proxy, url: str
) -> None:
    network.rule = black_hole
    recorder = Recorder(url)

    record(recorder, 200)

    assert not recorder.close(1.0), "it says that not everything was delivered"
    assert network.connections > 0, "it was tried"
    wait_for(lambda: recorder.counters().spooled == 200)
    assert (recorder.counters().recorded, recorder.counters().delivered) == (200, 0)


@pytest.mark.slow
def test_what_a_silent_broker_left_on_the_spool_is_sent_once_it_speaks(
    broker: Broker, network: Proxy, url: str
) -> None:
    network.rule = black_hole
    with closing(KafkaSink(location(url))) as sink:
        sink.append(make_records(cases(100)))
        assert not sink.flush(1.5)
        network.rule = well
        assert sink.flush(60)

    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 100


@pytest.mark.slow
def test_a_process_ends_although_its_broker_never_answers(network: Proxy, url: str) -> None:
    network.rule = black_hole
    program = """
import sys
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1])
with recorder.turn(session_id="s", user="hi") as turn:
    turn.respond("hello")
"""

    command = [sys.executable, "-c", program, url]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)

    assert done.returncode == 0
    assert "turns wait on the spool until the broker accepts them" in done.stderr
    assert len(list(Path(os.environ["EVALTAP_SPOOL_DIR"]).rglob("*.log.db"))) == 1


@pytest.mark.slow
def test_flapping_loses_nothing_and_lands_nothing_twice(
    broker: Broker, network: Proxy, url: str
) -> None:
    recorder = Recorder(url)
    for flap in range(10):
        record(recorder, 40, first=flap * 50)
        recorder.flush(0.1)
        network.refuse()
        record(recorder, 10, first=flap * 50 + 40)
        connections = network.connections
        network.listen()
        wait_for(lambda before=connections: network.connections > before)  # type: ignore[misc]
        counters = recorder.counters()
        assert counters.recorded == counters.delivered + counters.spooled
    assert recorder.close(60)

    assert recorder.counters().delivered == 500
    with Store(":memory:") as store:
        consumed = consume(broker.log(), store)
        found = turns(store)
    assert len(found) == len(set(found)) == 500
    assert consumed.landed.turns == 500


@pytest.mark.slow
def test_a_producer_that_cannot_send_what_it_holds_closes_all_the_same(broker: Broker) -> None:
    broker.must_be_ours()
    (one,) = make_records(cases(1))
    threads = set(threading.enumerate())
    producer = TopicProducer(location(broker.log()))
    assert producer.send(one).wait(20)
    broker.freeze()
    try:
        producer.send(one)

        producer.close()

        wait_for(lambda: set(threading.enumerate()) <= threads, 10)
    finally:
        broker.thaw()


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_rule",
    [
        lambda: the_first(3, "request", PRODUCE, Fate.HALF),
        lambda: the_first(3, "answer", PRODUCE, Fate.CUT),
        lambda: the_first(2, "answer", METADATA, Fate.CUT),
        lambda: the_first(1, "answer", PRODUCE, Fate.SWALLOW),
    ],
    ids=["reset within a batch", "answer lost", "metadata lost", "answer never comes"],
)
def test_what_went_wrong_is_sent_again(
    broker: Broker, network: Proxy, url: str, make_rule: Callable[[], Rule]
) -> None:
    network.rule = make_rule()
    with closing(KafkaSink(location(url))) as sink:
        sink.append(make_records(cases(700)))
        assert sink.flush(90)

    with Store(":memory:") as store:
        consumed = consume(broker.log(), store)
        found = turns(store)
    assert len(found) == len(set(found)) == 700
    assert consumed.landed.duplicates <= 3 * WINDOW_RECORDS


@pytest.mark.slow
def test_each_lost_acknowledgement_doubles_at_most_one_window(
    broker: Broker, network: Proxy, url: str
) -> None:
    network.rule = acknowledgements_lost
    with closing(KafkaSink(location(url))) as sink:
        sink.append(make_records(cases(1_200)))
        wait_for(lambda: network.seen["answer", PRODUCE] >= 3)
        network.rule = well
        assert sink.flush(90)

    lying = [record.header("ce_id") for record in messages(broker.log())]
    assert len(set(lying)) == 1_200
    assert len(lying) <= 1_200 + network.connections * WINDOW_RECORDS
    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 1_200


@pytest.mark.slow
def test_a_slow_network_delivers_in_order(broker: Broker, network: Proxy, url: str) -> None:
    network.delay_seconds = 0.05
    with closing(KafkaSink(location(url))) as sink:
        for part in range(4):
            sink.append(make_records(cases(300, first=part * 300), first_seq=part * 300 + 1))
        assert sink.flush(90)

    numbers = [int(record.header("seq") or 0) for record in messages(broker.log())]
    assert numbers == list(range(1, 1_201)), "one partition keeps what was recorded in order"


@pytest.mark.slow
def test_a_full_spool_drops_the_newest_turns_and_counts_each(
    broker: Broker, network: Proxy, url: str
) -> None:
    network.refuse()
    recorder = Recorder(url, log_max_bytes=1 << 20, queue_max_bytes=1 << 20)

    for part in range(10):
        record(recorder, 50, first=part * 50, answer="x" * 5_000)
        recorder.flush(0.5)
    network.listen()
    recorder.close(60)

    counters = recorder.counters()
    lost = counters.dropped["log_unavailable"]
    assert counters.recorded == 500
    assert lost > 0
    assert counters.delivered + counters.spooled == 500 - lost
    with Store(":memory:") as store:
        assert landed(broker.log(), store) == 500 - lost
        sessions = {session for session, _ in turns(store)}
        stated = store.rows("SELECT max(highest_seq), max(drops::VARCHAR) FROM manifests")
    assert stated == [(500 - lost, json.dumps({"log_unavailable": lost}, separators=(",", ":")))]
    assert sessions == {f"s-{number}" for number in range(500 - lost)}, "the newest went"


_FAIL_TO_CONNECT = """
import gc, os, sys, threading
from evaltap.recorder.delivery.sinks.kafka import TopicProducer
from evaltap.schemas.log.location import parse_log_location

def held():
    gc.collect()
    return threading.active_count(), len(os.listdir("/proc/self/fd"))

def fail():
    try:
        TopicProducer(parse_log_location(sys.argv[1]))
    except Exception as error:
        return type(error).__name__

assert fail() == "KafkaTimeoutError"
before = held()
for _ in range(50):
    assert fail() == "KafkaTimeoutError"
print(before == held(), before, held())
"""


@pytest.mark.slow
@pytest.mark.parametrize("silent", [False, True], ids=["refused", "black hole"])
def test_fifty_failed_connections_leave_no_thread_and_no_file_open(
    monkeypatch: pytest.MonkeyPatch, broker: Broker, network: Proxy, url: str, silent: bool
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_BOOTSTRAP_TIMEOUT_MS", "60")
    network.rule = black_hole
    if not silent:
        network.refuse()

    command = [sys.executable, "-c", _FAIL_TO_CONNECT, url]
    said = subprocess.run(command, capture_output=True, text=True, timeout=100)

    assert said.stdout.startswith("True"), said.stdout + said.stderr[-2000:]


@pytest.mark.slow
@pytest.mark.parametrize(
    "make_rule",
    [
        lambda: the_first(3, "answer", FETCH, Fate.CUT),
        lambda: the_first(1, "answer", FETCH, Fate.SWALLOW),
        lambda: the_first(1, "answer", FETCH, Fate.HALF),
    ],
    ids=["answer lost", "answer never comes", "half an answer"],
)
def test_a_consumer_goes_on_after_trouble_on_the_network(
    broker: Broker, client: KafkaClientName, network: Proxy, url: str, make_rule: Callable[[], Rule]
) -> None:
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(300)))
        assert sink.flush(60)

    network.rule = make_rule()
    with Store(":memory:") as store, closing(KafkaSource(location(url), client=client)) as source:
        consumer = Consumer(source, store)
        watching = threading.Thread(target=_stop_when, args=(consumer, 300), daemon=True)
        watching.start()
        consumed = consumer.run(until_idle=False, report=lambda _: None)

    assert (consumed.landed.turns, consumed.landed.duplicates) == (300, 0)


def _stop_when(consumer: Consumer, turns: int) -> None:
    wait_for(lambda: consumer.consumed.landed.turns >= turns, 90)
    consumer.stop()


def test_a_broker_that_dies_while_a_log_is_opened_is_asked_again(
    broker: Broker, network: Proxy, url: str
) -> None:
    asked = itertools.count(1)

    def die_after_the_first(way: Way, kind: int) -> Fate:
        dies = way == "request" and kind == METADATA and next(asked) in (2, 3, 4)
        return Fate.CUT if dies else Fate.PASS

    network.rule = die_after_the_first
    with closing(KafkaSource(location(url))) as source:
        assert source.missing_topics() == [broker.name("evaltap.cases")]
    assert next(asked) > 5, "it died, and then it answered"


@pytest.mark.slow
def test_a_source_says_that_no_broker_answers_until_one_does(
    broker: Broker,
    client: KafkaClientName,
    network: Proxy,
    url: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(3)))
        assert sink.flush(60)

    with closing(KafkaSource(location(url), client=client)) as source:
        source.seek({})
        wait_for(lambda: bool(source.poll(100, 0.2).records))
        assert not source.poll(100, 0.2).away
        network.refuse()
        wait_for(lambda: source.poll(100, 0.2).away)
        network.listen()
        wait_for(lambda: not source.poll(100, 0.2).away)

    said = [one.message for one in caplog.records if one.name == "evaltap.kafka"]
    assert ["no broker answers" in said[0], "answer again" in said[1], len(said)] == [True, True, 2]


@pytest.mark.slow
def test_who_waits_for_a_topic_waits_through_an_outage_too(
    broker: Broker, client: KafkaClientName, network: Proxy, url: str
) -> None:
    with closing(KafkaSource(location(url), client=client)) as source:
        source.seek({})
        network.refuse()
        assert [len(source.poll(100, 0.2).records) for _ in range(5)] == [0] * 5
        assert source.behind(), "nobody can say that this is the end"
        network.listen()
        with closing(KafkaSink(location(broker.log()))) as sink:
            sink.append(make_records(cases(3)))
            assert sink.flush(60)
        found = 0

        def read() -> int:
            nonlocal found
            found += len(source.poll(100, 0.2).records)
            return found

        wait_for(lambda: read() == 3)
