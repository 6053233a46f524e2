"""Topics that are not as they should be: missing, made anew, with batches that nothing can unpack."""

import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from broker import Broker, until
from cases import make_records
from evaltap.evaluator.cli import main
from evaltap.evaluator.consumer import Consumer
from evaltap.evaluator.sources.kafka import KafkaSource
from evaltap.evaluator.store import Store
from evaltap.recorder.sinks.kafka import KafkaSink, TopicProducer
from topics import cases, consume, location, make_anew, turns, write_broken_batch

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(autouse=True)
def _own_spool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("EVALTAP_SPOOL_DIR", str(tmp_path / "spool"))


def test_a_topic_that_was_made_anew_is_read_from_its_start_and_then_on(broker: Broker) -> None:
    """Its offsets are lower than those of what was landed before."""
    where = location(broker.log())
    written = 0

    def more(count: int) -> None:
        nonlocal written
        sink = KafkaSink(where)
        sink.append(make_records(cases(count, written), first_seq=written + 1))
        assert sink.flush(20)
        sink.close()
        written += count

    with Store(":memory:") as store:
        more(50)
        consume(broker.log(), store)
        make_anew(broker.address, where.topics[0])
        more(10)
        told = consume(broker.log(), store).gaps
        more(70)
        later = consume(broker.log(), store).gaps
        found = turns(store)

    assert ["made anew" in gap for gap in told] == [True]
    assert later == []
    assert len(found) == written


def test_a_topic_that_is_made_anew_while_it_is_read_is_told(broker: Broker) -> None:
    where = location(broker.log())
    sink, source = KafkaSink(where), KafkaSource(where)
    sink.append(make_records(cases(20)))
    assert sink.flush(20)
    source.seek({})
    assert len(source.poll(100, 10).records) == 20

    make_anew(broker.address, where.topics[0])
    sink.append(make_records(cases(5, 20), first_seq=21))
    gaps: list[str] = []
    offsets: list[int] = []
    deadline = time.monotonic() + 30
    while len(offsets) < 5 and time.monotonic() < deadline:
        batch = source.poll(100, 0.2)
        offsets += [record.offset for record in batch.records]
        gaps += batch.gaps
    sink.close()
    source.close()

    assert offsets == [0, 1, 2, 3, 4]
    assert ["made anew" in gap for gap in gaps] == [True]


@pytest.mark.parametrize("behind", [0, 3])
def test_a_batch_that_cannot_be_unpacked_is_a_gap_between_good_turns(
    broker: Broker, monkeypatch: pytest.MonkeyPatch, behind: int
) -> None:
    where = location(broker.log())
    sink = KafkaSink(where)
    sink.append(make_records(cases(5)))
    assert sink.flush(20)
    write_broken_batch(broker.address, where.topics[0], monkeypatch)
    sink.append(make_records(cases(behind, 5), first_seq=6))
    assert sink.flush(20)
    sink.close()

    with Store(":memory:") as store:
        first, second = consume(broker.log(), store), consume(broker.log(), store)
        found = turns(store)

    (gap,) = first.gaps
    assert gap.startswith(f"{where.topics[0]}[0]: records 5 to 6 cannot be unpacked (ZstdError")
    assert (len(found), second.landed.records, second.gaps) == (5 + behind, 0, [])


def test_a_topic_that_is_not_there_is_named_and_not_made_by_looking(
    broker: Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = broker.log("misspelt")
    db = str(tmp_path / "x.duckdb")

    codes = [main(["consume", "--log", log, "--db", db, "--until-idle"]) for _ in range(2)]
    told = capsys.readouterr().err
    codes.append(main(["doctor", "--log", log]))

    assert codes == [2, 2, 1]
    assert told.count(f"no such topic: {broker.name('misspelt')}") == 2
    assert f"the cluster has no topic {broker.name('misspelt')}" in capsys.readouterr().out


def test_a_consumer_waits_for_a_topic_that_is_made_later(broker: Broker) -> None:
    with closing(KafkaSource(location(broker.log()))) as source, Store(":memory:") as store:
        consumer = Consumer(source, store)
        thread = threading.Thread(
            target=lambda: consumer.run(until_idle=False, report=lambda _: None)
        )
        thread.start()
        sink = KafkaSink(location(broker.log()))
        sink.append(make_records(cases(3)))
        assert sink.flush(20)
        sink.close()
        until(lambda: consumer.consumed.landed.turns == 3)
        consumer.stop()
        thread.join()


def test_a_record_that_unpacks_to_a_hundred_megabytes_is_a_dead_letter_of_bounded_size(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
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
        consumed = consume(broker.log(), store)
        ((reason, size),) = store.rows(
            "SELECT reason, octet_length(record_value) FROM dead_letters"
        )

    assert (consumed.landed.turns, reason, size) == (2, "too_large", 8 << 20)
