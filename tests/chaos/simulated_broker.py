"""A topic in memory with the faults of a real one, its producer and its source."""

import random
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from chaos.evidence import Record
from evaltap.evaluator.ingest.sources.base import Bounds, Partition, SourceBatch, SourceRecord
from evaltap.recorder.faults import RecordRefusedError
from evaltap.schemas.wire.record import WireRecord

TOPIC = "simulated"
TOO_LARGE = b"too-large-for-the-broker"

Mood = Literal["well", "down", "loses acks", "half"]
"""How the broker answers: as it should, not at all, only by appending, or on half of its partitions."""


class Crash(BaseException):
    """The process died here; nothing of the product may catch it."""


@dataclass(slots=True)
class _Message:
    offset: int
    record: WireRecord


class Topic:
    """Partitions of messages; what retention deletes is kept aside for the checker."""

    def __init__(self, rng: random.Random, partitions: int) -> None:
        self.mood: Mood = "well"
        self.gone: list[Record] = []
        self._rng = rng
        self._partitions: list[list[_Message]] = [[] for _ in range(partitions)]
        self._ends = [0] * partitions

    @property
    def partitions(self) -> range:
        """The numbers of the partitions."""
        return range(len(self._partitions))

    def end(self, number: int) -> int:
        """Return the offset that the next message of a partition gets."""
        return self._ends[number]

    def start(self, number: int) -> int:
        """Return the offset of the oldest message that is kept."""
        messages = self._partitions[number]
        return messages[0].offset if messages else self._ends[number]

    def partition_of(self, key: bytes | None) -> int:
        """Return where messages of a key go."""
        return zlib.crc32(key or b"") % len(self._partitions)

    def append(self, number: int, record: WireRecord) -> None:
        """Append a message."""
        self._partitions[number].append(_Message(self._ends[number], record))
        self._ends[number] += 1

    def read(self, number: int, offset: int, limit: int) -> list[tuple[int, WireRecord]]:
        """Return messages from an offset on."""
        found = (message for message in self._partitions[number] if message.offset >= offset)
        return [
            (message.offset, message.record)
            for message, _ in zip(found, range(limit), strict=False)
        ]

    def grow(self) -> None:
        """Add a partition, as an operator does; what is keyed moves."""
        self._partitions.append([])
        self._ends.append(0)

    def delete_before(self, number: int, offset: int) -> None:
        """Delete what is older than an offset, as retention does."""
        messages = self._partitions[number]
        while messages and messages[0].offset < offset:
            message = messages.pop(0)
            self.gone.append(as_evidence(number, message.offset, message.record))

    def dump(self) -> list[Record]:
        """Return all messages for the checker."""
        return [
            as_evidence(number, message.offset, message.record)
            for number in self.partitions
            for message in self._partitions[number]
        ]

    def producer(self) -> "Producer":
        """Return a producer of its own session."""
        return Producer(self, self._rng)


def as_evidence(number: int, offset: int, record: WireRecord) -> Record:
    """Return a message as the checker reads it."""
    headers = {name: value.decode("utf-8", "replace") for name, value in record.headers}
    return Record(TOPIC, number, offset, record.key or b"", headers, record.value or b"")


class _Answer:
    def __init__(self, error: BaseException | None) -> None:
        self._error = error

    def wait(self, timeout_seconds: float) -> bool:
        if self._error is not None:
            raise self._error
        return True


class Producer:
    """A producer's session as the forwarder uses it."""

    def __init__(self, topic: Topic, rng: random.Random) -> None:
        self._topic = topic
        self._rng = rng
        self._failed: set[int] = set()
        self.crash_after: int | None = None
        """Die when so many messages were sent; their acknowledgements are not seen any more."""

    def send(self, record: WireRecord) -> _Answer:
        """Append the message unless the broker's mood is against it."""
        if TOO_LARGE in (record.value or b""):
            if self._rng.random() < 0.5:
                raise RecordRefusedError
            return _Answer(RecordRefusedError())
        answer = self._deliver(self._topic.partition_of(record.key), record)
        if self.crash_after is not None:
            self.crash_after -= 1
            if self.crash_after < 0:
                return _Answer(Crash("a process died while it waited for the broker"))
        return answer

    def _deliver(self, number: int, record: WireRecord) -> _Answer:
        mood = self._topic.mood
        lost = _Answer(TimeoutError("no answer"))
        # An idempotent producer keeps the order of a partition: after a failure nothing follows.
        if number in self._failed or mood == "down" or (mood == "half" and number % 2):
            self._failed.add(number)
            return lost
        self._topic.append(number, record)
        if mood == "loses acks" and self._rng.random() < 0.5:
            self._failed.add(number)
            return lost
        return _Answer(None)

    def close(self) -> None:
        """Forget what is under way."""


class TopicSource:
    """Reads the topic as KafkaSource does; `hold_back` makes some polls return less than there is."""

    def __init__(self, topic: Topic, rng: random.Random) -> None:
        self._topic = topic
        self._rng = rng
        self._offsets: Mapping[Partition, int] = {}
        self._next: dict[int, int] = {}
        self.hold_back = False
        self.crash_at_poll: int | None = None

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Go on at these offsets; partitions that are not named are read from their start."""
        self._offsets, self._next = dict(offsets), {}

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the next records."""
        if self.crash_at_poll is not None:
            self.crash_at_poll -= 1
            if self.crash_at_poll < 0:
                raise Crash("the consumer died before it read on")
        if self._topic.mood == "down":
            return SourceBatch()
        limit = self._rng.randint(2, 8) if self.hold_back else max_records
        records: list[SourceRecord] = []
        next_offsets: dict[Partition, int] = {}
        for number in self._topic.partitions:
            partition = Partition(TOPIC, number)
            first = self._position(partition)
            found: Sequence[tuple[int, WireRecord]] = self._topic.read(number, first, limit)
            if found:
                self._next[number] = next_offsets[partition] = found[-1][0] + 1
                records += [SourceRecord(partition, offset, record) for offset, record in found]
        return SourceBatch(tuple(records), next_offsets)

    def _position(self, partition: Partition) -> int:
        if partition.number not in self._next:
            start, end = self._topic.start(partition.number), self._topic.end(partition.number)
            wanted = self._offsets.get(partition, 0)
            self._next[partition.number] = wanted if start <= wanted <= end else start
        return self._next[partition.number]

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        """Return the offsets that are kept."""
        return {
            Partition(TOPIC, number): Bounds(self._topic.start(number), self._topic.end(number))
            for number in self._topic.partitions
        }

    def close(self) -> None:
        """Do nothing."""
