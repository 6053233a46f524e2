"""Topics for tests: consume them into a store, count their records, record to them."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import pytest

from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.ingest.topics.clients import TopicWriter
from evaltap.evaluator.pipeline.live.consumer import Consumed, Consumer
from evaltap.evaluator.store.database import Store
from evaltap.recorder import Recorder
from evaltap.schemas.log.location import KafkaClientName, KafkaLocation, parse_log_location
from evaltap.schemas.wire.record import WireRecord
from support.builders.cases import make_case, make_records, make_turn
from support.builders.waiting import wait_for
from support.servers.broker import Broker


def location(url: str) -> KafkaLocation:
    """Return the topics that a URL names."""
    found = parse_log_location(url)
    assert isinstance(found, KafkaLocation)
    return found


def consume(url: str, store: Store, *, client: KafkaClientName = "kafka-python") -> Consumed:
    """Land what lies on the topics and is not landed yet."""
    source = KafkaSource(location(url), to_end=True, client=client)
    try:
        return Consumer(source, store).run(until_idle=True, report=lambda _: None)
    finally:
        source.close()


def messages(url: str) -> list[WireRecord]:
    """Return all that lies on the topics, by partition and offset."""
    source = KafkaSource(location(url))
    try:
        source.seek({})
        end = sum(bounds.end - bounds.start for bounds in source.bounds().values())
        found: list[WireRecord] = []
        while len(found) < end:
            found += [item.record for item in source.poll(1_000, 0.2).records]
        return found
    finally:
        source.close()


def turns(store: Store) -> list[tuple[Any, ...]]:
    """Return session and id of every landed turn."""
    return store.rows("SELECT eval_id, invocation_id FROM turns ORDER BY ALL")


def landed(url: str, store: Store, *, client: KafkaClientName = "kafka-python") -> int:
    """Land what is new and return how many turns the store has."""
    consume(url, store, client=client)
    return len(turns(store))


def cases(count: int, first: int = 0) -> list[dict[str, Any]]:
    """Return cases of one turn each, all different."""
    return [make_case(f"s-{i}", [make_turn(f"t-{i}")]) for i in range(first, first + count)]


def sessions(count: int, turns: int = 2) -> list[dict[str, Any]]:
    """Return one-turn cases, interleaved over sessions; every third session has no idea."""
    return [
        make_case(
            f"s-{number}",
            [make_turn(f"t-{turn}", answer="no idea" if number % 3 == 0 else f"answer {number}")],
            conversation=[make_turn(f"t-{turn}", answer=f"answer {number}")],
        )
        for turn in range(turns)
        for number in range(count)
    ]


def publish(url: str, records: Iterable[WireRecord]) -> None:
    """Write records to the topic of a URL and wait for the broker."""
    place = location(url)
    writer = TopicWriter(place, client_id="test")
    refused = writer.write(place.topics[0], list(records))
    writer.close()
    assert not refused, "a record is larger than the topic takes"


def record_sessions(broker: Broker, count: int, turns: int = 2) -> None:
    """Put sessions on the topic of the test."""
    publish(broker.log(), make_records(sessions(count, turns)))


def record(recorder: Recorder, count: int, first: int = 0, answer: str = "hello") -> None:
    """Record sessions of one turn each."""
    for number in range(first, first + count):
        with recorder.turn(session_id=f"s-{number}", user="hi") as turn:
            turn.respond(answer)


def delete_records(broker_address: str, topic: str, *, before: int) -> bool:
    """Delete what lies before an offset of partition 0, as retention does; False where one cannot."""
    from kafka import KafkaAdminClient
    from kafka.errors import KafkaError
    from kafka.structs import TopicPartition

    admin = KafkaAdminClient(bootstrap_servers=broker_address)
    try:
        admin.delete_records({TopicPartition(topic, 0): before})
        return True
    except KafkaError:
        return False
    finally:
        admin.close()


def make_anew(broker_address: str, topic: str) -> None:
    """Delete a topic and make it again: its offsets begin at 0."""
    from kafka import KafkaAdminClient
    from kafka.admin import NewTopic
    from kafka.errors import TopicAlreadyExistsError

    admin = KafkaAdminClient(bootstrap_servers=broker_address)
    try:
        admin.delete_topics([topic])
        wait_for(lambda: topic not in admin.list_topics())
        with suppress(TopicAlreadyExistsError):  # a reader may have asked for it in between
            admin.create_topics([NewTopic(topic, num_partitions=1, replication_factor=1)])
    finally:
        admin.close()


def garbage(payload: bytes) -> bytes:
    """Return what no codec unpacks, as bad memory or a bad proxy may make of a batch."""
    return b"\x00garbage" * 5


def strange_header(payload: bytes) -> bytes:
    """Return a batch in which the header `name` has a name that is no text."""
    from kafka.codec import zstd_encode

    packed: bytes = zstd_encode(bytes(payload).replace(b"name", b"\xff\xfe\xff\xfe"))
    return packed


def write_broken_batch(
    broker_address: str,
    topic: str,
    monkeypatch: pytest.MonkeyPatch,
    compress: Callable[[bytes], bytes] = garbage,
) -> None:
    """Write a batch of two records that is compressed by a function instead of zstd."""
    from kafka import KafkaProducer
    from kafka.errors import KafkaError
    from kafka.record import default_records

    with monkeypatch.context() as patched:
        patched.setattr(default_records, "zstd_encode", compress)
        producer = KafkaProducer(
            bootstrap_servers=broker_address, compression_type="zstd", linger_ms=200
        )
        answers = [
            producer.send(topic, key=b"k", value=b"y" * 500, headers=[("name", b"")])
            for _ in range(2)
        ]
        try:
            for answer in answers:
                answer.get(10)
        except KafkaError:
            pytest.skip("this broker looks into what it takes")
        finally:
            producer.close()
