"""Unusual topics: missing, recreated, or with batches that cannot be decompressed."""

import threading
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.sources import kafka
from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.ingest.sources.positions import log_positions, stored_offsets
from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.evaluator.pipeline.live.consumer import Consumer
from evaltap.evaluator.store.database import Store
from evaltap.recorder.delivery.sinks.kafka import KafkaSink, TopicProducer
from evaltap.schemas.log.location import KafkaClientName, KafkaLocation
from support.builders.cases import make_records
from support.builders.topics import (
    cases,
    consume,
    delete_records,
    location,
    make_anew,
    strange_header,
    turns,
    write_broken_batch,
)
from support.builders.waiting import wait_for
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(60)


def write(where: KafkaLocation, count: int, first: int = 0) -> None:
    """Write turns to a topic, by a recorder of their own."""
    sink = KafkaSink(where)
    sink.append(make_records(cases(count, first), first_seq=first + 1))
    assert sink.flush(20)
    sink.close()


def test_a_topic_that_was_made_anew_is_read_from_its_start_and_then_on(
    broker: Broker, client: KafkaClientName
) -> None:
    """Its offsets are lower than those of what was landed before."""
    where = location(broker.log())
    with Store(":memory:") as store:
        write(where, 50)
        consume(broker.log(), store, client=client)
        make_anew(broker.address, where.topics[0])
        write(where, 10, first=50)
        told = consume(broker.log(), store, client=client).gaps
        write(where, 70, first=60)
        later = consume(broker.log(), store, client=client).gaps
        found = turns(store)

    assert ["was recreated" in gap for gap in told] == [True]
    assert later == []
    assert len(found) == 130


@pytest.mark.parametrize("looked", [False, True])
def test_a_topic_that_is_made_anew_while_it_is_read_is_told(
    broker: Broker, client: KafkaClientName, looked: bool
) -> None:
    """One that nobody looked at before it outgrew the old one cannot be told from it."""
    where = location(broker.log())
    write(where, 20)
    source = KafkaSource(where, client=client)
    source.seek({})
    assert len(source.poll(100, 10).records) == 20
    gaps: list[str] = []
    offsets: list[int] = []

    def polled(done: Callable[[], bool]) -> None:
        deadline = time.monotonic() + 30
        while not done() and time.monotonic() < deadline:
            batch = source.poll(100, 0.2)
            offsets.extend(record.offset for record in batch.records)
            gaps.extend(batch.gaps)

    make_anew(broker.address, where.topics[0])
    count = 5
    if looked:
        polled(lambda: bool(gaps))
        count = 40
    write(where, count, first=20)
    polled(lambda: len(offsets) >= count)
    source.close()

    assert offsets == [*range(count)]
    assert ["was recreated" in gap for gap in gaps] == [True]


@pytest.mark.parametrize("behind", [0, 3])
def test_a_batch_that_cannot_be_unpacked_is_a_gap_between_good_turns(
    broker: Broker, client: KafkaClientName, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    where = location(broker.log())
    write(where, 5)
    write_broken_batch(broker.address, where.topics[0], monkeypatch)
    write(where, behind, first=5)

    with Store(":memory:") as store:
        first, second = [consume(broker.log(), store, client=client) for _ in range(2)]
        found = turns(store)

    (gap,) = first.gaps
    cause = {"kafka-python": "ZstdError", "confluent-kafka": "CorruptRecordError"}[client]
    assert gap.startswith(f"{where.topics[0]}[0]: records 5 to 6 cannot be unpacked ({cause}")
    assert (len(found), second.landed.records, second.gaps) == (5 + behind, 0, [])


def test_records_whose_headers_are_no_texts_are_a_gap_between_good_turns(
    broker: Broker, client: KafkaClientName, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = location(broker.log())
    write(where, 500)  # many, because Python calls differently in code that runs often
    write_broken_batch(broker.address, where.topics[0], monkeypatch, strange_header)
    write(where, 3, first=500)

    with Store(":memory:") as store:
        consumed = consume(broker.log(), store, client=client)

    assert consumed.landed.turns == 503
    (gap,) = consumed.gaps
    assert "records 500 to 501 cannot be unpacked" in gap
    assert "invalid start byte" in gap


def test_a_topic_that_is_not_there_is_named_and_not_made_by_looking(
    broker: Broker, client: KafkaClientName, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = broker.log("misspelt")
    db = str(tmp_path / "x.duckdb")

    consume = ["consume", "--log", log, "--db", db, "--kafka-client", client]
    codes = [main([*consume, "--until-idle"]) for _ in range(2)]
    told = capsys.readouterr().err
    codes.append(main(["doctor", "--log", log]))

    assert codes == [2, 2, 1]
    assert told.count(f"no such topic: {broker.name('misspelt')}") == 2
    assert f"the cluster has no topic {broker.name('misspelt')}" in capsys.readouterr().out


@pytest.mark.slow
def test_a_consumer_waits_for_a_topic_that_is_made_later(
    broker: Broker, client: KafkaClientName
) -> None:
    with (
        closing(KafkaSource(location(broker.log()), client=client)) as source,
        Store(":memory:") as store,
    ):
        consumer = Consumer(source, store)
        thread = threading.Thread(
            target=lambda: consumer.run(until_idle=False, report=lambda _: None)
        )
        thread.start()
        write(location(broker.log()), 3)
        wait_for(lambda: consumer.consumed.landed.turns == 3)
        consumer.stop()
        thread.join()


@pytest.mark.slow
def test_a_record_that_unpacks_to_a_hundred_megabytes_is_a_dead_letter_of_bounded_size(
    broker: Broker, client: KafkaClientName, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_REQUEST_SIZE", str(1 << 28))
    good = make_records(cases(2))
    huge = good[0]._replace(value=b"x" * 150_000_000)
    where = location(broker.log())
    producer = TopicProducer(where)
    answers = [producer.send(one) for one in (good[0], huge, good[1])]
    assert all(answer.wait(20) for answer in answers)
    producer.close()

    with Store(tmp_path / "x.duckdb") as store:
        consumed = consume(broker.log(), store, client=client)
        ((reason, size),) = store.rows(
            "SELECT reason, octet_length(record_value) FROM dead_letters"
        )

    assert (consumed.landed.turns, reason, size) == (2, "too_large", 8 << 20)


def test_records_of_aborted_transactions_are_no_turns(
    broker: Broker, client: KafkaClientName
) -> None:
    from kafka import KafkaProducer

    if not broker.is_apache:
        pytest.skip("noida-db has no transactions; Kafka itself runs it")
    where = location(broker.log())
    producer = KafkaProducer(
        bootstrap_servers=broker.address, transactional_id=broker.name("writer")
    )
    producer.init_transactions()
    for first, end in ((0, producer.commit_transaction), (3, producer.abort_transaction)):
        producer.begin_transaction()
        for record in make_records(cases(3, first=first), first_seq=first + 1):
            producer.send(
                where.topics[0], record.value, key=record.key, headers=list(record.headers)
            )
        producer.flush()
        end()
    producer.close()

    with Store(":memory:") as store:
        consumed = consume(broker.log(), store, client=client)
        assert [session for session, _ in turns(store)] == ["s-0", "s-1", "s-2"]
        assert consumed.gaps == []
        with closing(KafkaSource(where, client=client)) as source:
            (position,) = log_positions(source.bounds(), stored_offsets(store))
        assert position.waiting == 0, "marks of transactions are nothing to read"


def test_what_is_deleted_from_a_partition_that_was_empty_is_a_gap(
    broker: Broker, client: KafkaClientName
) -> None:
    where = location(broker.log())
    topic = where.topics[0]
    create_topics(where, {topic: 1})
    with Store(":memory:") as store:
        first = consume(broker.log(), store, client=client)
        write(where, 10)
        if not delete_records(broker.address, topic, before=7):
            pytest.skip("this broker deletes no records on request")
        second = consume(broker.log(), store, client=client)

    assert (first.gaps, second.landed.turns) == ([], 3)
    assert second.gaps == [
        f"{topic}[0]: records 0 to 6 are gone from the log and were never landed"
    ]


@pytest.mark.parametrize("option", ["--dlq-topic", "--scores-topic"])
def test_what_is_published_does_not_go_to_a_topic_that_is_read(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str
) -> None:
    write(location(broker.log()), 1)
    topic = broker.name("evaltap.cases")
    command = ["consume", "--log", broker.log(), "--db", str(tmp_path / "x.duckdb"), "--until-idle"]

    codes = [main([*command, option, place]) for place in (topic, broker.log())]

    assert codes == [2, 2]
    assert capsys.readouterr().err.count("its records would be consumed in a loop") == 2


def test_whoever_waits_for_a_topic_notices_that_no_broker_answers(
    broker: Broker, client: KafkaClientName, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker.must_be_ours()
    monkeypatch.setattr(kafka, "ANSWER_SECONDS", 0.5)
    where = location(broker.log())
    with closing(KafkaSource(where, client=client)) as source:
        assert not source.poll(1, 0.01).away
        broker.stop()
        assert source.poll(1, 0.01).away

        broker.start()
        write(where, 1)
        wait_for(lambda: len(source.poll(1, 0.01).records) == 1)
        assert not source.poll(1, 0.01).away
