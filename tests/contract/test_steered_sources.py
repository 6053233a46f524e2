"""The contract of a controllable source: it knows when it is at the end, and can be paused."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kafka import KafkaProducer

from evaltap.evaluator.ingest.sources.base import Partition, SourceRecord, SteeredSource
from evaltap.evaluator.ingest.sources.kafka import KafkaSource
from evaltap.evaluator.ingest.topics.clients import create_topics
from evaltap.schemas.log.location import KafkaClientName
from support.builders.telemetry_log import START_MS, MemoryTopics, Message
from support.builders.topics import location
from support.servers.broker import Broker

pytestmark = pytest.mark.timeout(120)

TOPIC = "steered"


class Topic:
    """A topic of two partitions, somewhere."""

    def __init__(self, source: SteeredSource, name: str, write: Callable[[int], Any]) -> None:
        self.source = source
        self.write = write
        self.first, self.second = (Partition(name, number) for number in (0, 1))

    def read(self, count: int) -> list[SourceRecord]:
        found: list[SourceRecord] = []
        while len(found) < count:
            found += self.source.poll(1, 0.2).records
        return found


class Contract:
    """What every steered source does; the fixture `topic` is that of a kind of source."""

    def test_it_is_behind_until_everything_was_returned(self, topic: Topic) -> None:
        for number in (0, 1, 1):
            topic.write(number)

        before = set(topic.source.behind())
        topic.read(2)
        between = set(topic.source.behind())
        topic.read(1)

        assert before == {topic.first, topic.second}
        assert len(between) == 1
        assert set(topic.source.behind()) == set()

    def test_what_is_written_later_puts_it_behind_again(self, topic: Topic) -> None:
        topic.write(0)
        topic.read(1)

        topic.write(1)

        assert set(topic.source.behind()) == {topic.second}

    def test_a_paused_partition_returns_nothing_until_it_goes_on(self, topic: Topic) -> None:
        topic.write(0)
        topic.write(1)
        topic.source.pause([topic.first])

        seen = topic.read(1)
        more = topic.source.poll(10, 0.5).records
        topic.source.pause([])
        rest = topic.read(1)

        assert [record.partition for record in (*seen, *more)] == [topic.second]
        assert [record.partition for record in rest] == [topic.first]

    def test_a_paused_partition_with_records_is_behind(self, topic: Topic) -> None:
        topic.write(0)
        topic.source.pause([topic.first])
        topic.source.poll(10, 0.2)

        assert set(topic.source.behind()) == {topic.first}

    def test_records_say_when_they_were_written(self, topic: Topic) -> None:
        topic.write(0)

        (record,) = topic.read(1)

        assert record.time_ms is not None
        assert record.time_ms >= START_MS


class TestMemory(Contract):
    """The twin in memory."""

    @pytest.fixture
    def topic(self) -> Topic:
        topics = MemoryTopics()
        message = Message(TOPIC, b"x")
        return Topic(topics, TOPIC, lambda n: topics.write(message, START_MS, partition=n))


class TestKafka(Contract):
    """Topics of a broker."""

    @pytest.fixture
    def topic(self, broker: Broker, client: KafkaClientName) -> Iterator[Topic]:
        name = broker.name(TOPIC)
        create_topics(location(broker.log(TOPIC)), {name: 2})
        producer = KafkaProducer(bootstrap_servers=broker.address)
        source = KafkaSource(location(broker.log(TOPIC)), client=client)
        source.seek({})
        yield Topic(
            source, name, lambda number: producer.send(name, b"x", partition=number).get(30)
        )
        source.close()
        producer.close()
