"""Kafka in both directions, over a real broker process: nothing lost, nothing duplicated, no blocking."""

import json
import os
import subprocess
import sys
import time
from contextlib import closing
from operator import itemgetter
from pathlib import Path

import pytest

from evaltap.cli.main import main
from evaltap.evaluator.ingest.sources.base import Partition
from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.recorder.delivery.sinks.kafka import KafkaSink
from evaltap.recorder.delivery.spool.spool import new_spool, spool_states
from evaltap.schemas.log.folders import spool_folder, spool_path
from evaltap.schemas.log.location import KafkaClientName
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records, make_turn, write_log
from support.builders.topics import (
    cases,
    consume,
    delete_records,
    landed,
    location,
    messages,
    record,
    turns,
)
from support.builders.waiting import wait_for
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(60)


def test_cases_go_to_a_topic_and_come_back_equal(broker: Broker, tmp_path: Path) -> None:
    lines = tmp_path / "c.jsonl"
    lines.write_text("".join(json.dumps(case) + "\n" for case in cases(300)))
    url = broker.log()

    assert main(["record", "cases", str(lines), "--log", url]) == 0
    assert main(["consume", "--log", url, "--db", str(tmp_path / "x.duckdb"), "--until-idle"]) == 0
    assert (
        main(["set", "export", str(tmp_path / "x.duckdb"), "--out", str(tmp_path / "e.jsonl")]) == 0
    )

    exported = [json.loads(line) for line in (tmp_path / "e.jsonl").read_text().splitlines()]
    # An empty source says that they expect nothing.
    recorded = [case | {"source": {}} for case in cases(300)]
    by_id = itemgetter("evalId")
    assert sorted(exported, key=by_id) == sorted(recorded, key=by_id)
    assert list((tmp_path / "spool" / broker.name("evaltap.cases")).glob("*.log.db")) == [], (
        "all sent, nothing kept"
    )


def test_a_second_consumer_goes_on_where_the_store_stands(
    broker: Broker, client: KafkaClientName
) -> None:
    sink = KafkaSink(location(broker.log()))
    with Store(":memory:") as store:
        sink.append(make_records(cases(3)))
        assert sink.flush(20)
        assert consume(broker.log(), store, client=client).landed.turns == 3

        sink.append(make_records(cases(2, first=3), first_seq=4))
        assert sink.flush(20)
        consumed = consume(broker.log(), store, client=client)

    sink.close()
    assert (consumed.landed.records, consumed.landed.turns) == (2, 2)


def test_who_reads_to_the_end_is_told_that_there_is_more_before_anything_was_fetched(
    broker: Broker,
    client: KafkaClientName,
) -> None:
    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(3)))
        assert sink.flush(20)

    with closing(KafkaSource(location(broker.log()), to_end=True, client=client)) as source:
        source.seek({})
        read, batch = 0, source.poll(1, 0)
        while batch.records or batch.more:
            read += len(batch.records)
            batch = source.poll(1, 0)

    assert read == 3


def test_while_the_broker_is_away_turns_are_spooled_and_sent_when_it_is_back(
    broker: Broker,
) -> None:
    broker.stop()
    recorder = Recorder(broker.log())
    record(recorder, 50)
    recorder.flush(0.5)

    counters = recorder.counters()
    assert counters.recorded == counters.delivered + counters.spooled
    assert counters.spooled == 50

    broker.start()
    assert recorder.close(60)
    with Store(":memory:") as store:
        consume(broker.log(), store)
        assert len(turns(store)) == 50


@pytest.mark.slow
def test_what_a_closed_recorder_could_not_send_the_next_one_sends(broker: Broker) -> None:
    broker.stop()
    first = Recorder(broker.log())
    record(first, 20)
    first.close(1)
    folder = spool_path(location(broker.log()))
    wait_for(lambda: [one.owned for one in spool_states(folder)] == [False])

    broker.start()
    second = Recorder(broker.log())
    with second.turn(session_id="later", user="hi") as turn:
        turn.respond("hello")
    assert second.close(30)

    with Store(":memory:") as store:
        wait_for(lambda: landed(broker.log(), store) == 21)
        assert store.rows("SELECT count(DISTINCT producer_id) FROM turns") == [(2,)]


def test_what_waits_for_one_cluster_never_goes_to_the_same_topic_of_another(
    broker: Broker,
) -> None:
    away = broker.log().replace(broker.address, "127.0.0.1:1")
    left = new_spool(spool_folder(location(away)))
    write_log(left.path, make_records(cases(5)))
    left.release()

    with closing(KafkaSink(location(broker.log()))) as sink:
        sink.append(make_records(cases(2, first=10)))
        assert sink.flush(30)

    assert sorted((one.key or b"").decode() for one in messages(broker.log())) == ["s-10", "s-11"]


def test_a_killed_process_leaves_its_turns_to_the_next(broker: Broker) -> None:
    program = """
import os, sys
from evaltap.recorder import Recorder
recorder = Recorder(sys.argv[1])
for number in range(20):
    with recorder.turn(session_id=f"s-{number}", user="hi") as turn:
        turn.respond("hello")
recorder.flush(2)
print(recorder.counters().spooled, flush=True)
os.kill(os.getpid(), 9)
"""
    broker.stop()
    command = [sys.executable, "-c", program, broker.log()]
    killed = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ))
    assert killed.stdout.strip() == "20", killed.stderr

    broker.start()
    sink = KafkaSink(location(broker.log()))
    sink.append(make_records([make_case("own")]))
    assert sink.flush(30)
    with Store(":memory:") as store:
        wait_for(lambda: landed(broker.log(), store) == 21)
    sink.close()


def test_a_broker_restart_in_the_middle_loses_and_doubles_nothing(
    broker: Broker, client: KafkaClientName
) -> None:
    sink = KafkaSink(location(broker.log()))
    for part in range(5):
        sink.append(make_records(cases(200, first=part * 200), first_seq=part * 200 + 1))
        if part == 2:
            broker.stop()
            broker.start()
    assert sink.flush(90)
    sink.close()

    with Store(":memory:") as store:
        consumed = consume(broker.log(), store, client=client)
        found = turns(store)

    assert len(found) == len(set(found)) == 1_000
    assert consumed.landed.records == consumed.landed.turns + consumed.landed.duplicates


def test_a_record_that_the_broker_never_takes_holds_up_nobody(
    broker: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_REQUEST_SIZE", "5000")
    big = make_case("big", [make_turn(answer="x" * 20_000)])
    sink = KafkaSink(location(broker.log()))

    sink.append(make_records([big, *cases(3)]))

    assert sink.flush(20)
    sink.close()
    with Store(":memory:") as store:
        assert consume(broker.log(), store).landed.turns == 3
    assert list((tmp_path / "spool").rglob("*.rejected")), "set aside, not lost"


def test_poison_on_the_topic_becomes_dead_letters_between_good_turns(
    broker: Broker, client: KafkaClientName
) -> None:
    good = make_records(cases(2))
    poison = [
        WireRecord(b"k", b"{", good[0].headers),
        WireRecord(None, b"", ()),
        WireRecord(b"k", None, ()),
    ]
    sink = KafkaSink(location(broker.log()))
    sink.append([good[0], *poison, good[1]])
    assert sink.flush(20)
    sink.close()

    with Store(":memory:") as store:
        consumed = consume(broker.log(), store, client=client)

    assert (consumed.landed.turns, consumed.landed.dead_letters) == (2, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("log", "message"),
    [
        ("kafka://127.0.0.1:9/t", "no broker answers"),
        ("kafka://user:secret@h:1/t", "must not contain a user or password"),
        ("kafka://h:1/", "names no broker or no topic"),
        ("http://h:1/t", "unknown kind of URL"),
        ("kafka://h:1/t?format=odd", "not supported"),
        ("kafka://h:1/t?x=1", "unknown option 'x'"),
    ],
)
def test_a_log_that_cannot_be_read_is_explained(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], log: str, message: str
) -> None:
    code = main(["consume", "--log", log, "--db", str(tmp_path / "x.duckdb"), "--until-idle"])

    said = capsys.readouterr().err
    assert code == 2
    assert message in said
    assert "secret" not in said


@pytest.mark.slow
def test_without_a_broker_a_command_says_one_line_and_leaves_no_thread_behind(
    tmp_path: Path,
) -> None:
    evaltap = "import sys; from evaltap.cli.main import main; sys.exit(main())"
    command = [sys.executable, "-c", evaltap, "consume",
               "--log", "kafka://127.0.0.1:9/t", "--db", str(tmp_path / "x.duckdb")]  # fmt: skip
    environment = {**os.environ, "EVALTAP_KAFKA_BOOTSTRAP_TIMEOUT_MS": "300"}

    said = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=60)

    # A thread of the client that lives on at the end would make DuckDB print what it leaked.
    assert said.stderr.splitlines() == [
        "evaltap consume: kafka://127.0.0.1:9/t: no broker answers (KafkaTimeoutError: Unable to"
        " bootstrap from ['127.0.0.1:9']); check address and settings"
    ]


@pytest.mark.slow
def test_what_retention_deletes_unread_while_a_consumer_runs_is_a_gap_with_its_offsets(
    broker: Broker, client: KafkaClientName, monkeypatch: pytest.MonkeyPatch
) -> None:
    # One batch of the producer at a time, so that the client has not fetched everything already.
    monkeypatch.setenv("EVALTAP_KAFKA_MAX_PARTITION_FETCH_BYTES", "1")
    where = location(broker.log())
    sink, source = KafkaSink(where), KafkaSource(where, client=client)
    sink.append(make_records(cases(5)))
    assert sink.flush(20)
    source.seek({})
    seen = [record.offset for record in source.poll(100, 10).records]

    # librdkafka fetches ahead all the same, and forgets what it has of a paused partition.
    source.pause([Partition(where.topics[0])])
    for first in range(5, 105, 5):
        sink.append(make_records(cases(5, first), first_seq=first + 1))
        assert sink.flush(20)
    if not delete_records(broker.address, where.topics[0], before=60):
        pytest.skip("this broker deletes no records on request")
    source.pause([])
    gaps: list[str] = []
    deadline = time.monotonic() + 20
    while (not seen or seen[-1] != 104) and time.monotonic() < deadline:
        batch = source.poll(1000, 0.2)
        seen += [record.offset for record in batch.records]
        gaps += batch.gaps
    source.close()
    sink.close()

    first = next(offset for offset in range(105) if offset not in seen)
    assert seen == [*range(first), *range(60, 105)]
    assert gaps == [
        f"{where.topics[0]}[0]: records {first} to 59 are gone from the log and were never landed"
    ]
