"""Batches that the Kafka client cannot unpack: which records they contain.

A batch with damaged compression or lengths stops the client at the same offset forever, without saying in
which partition, or where the batch ends.  So each partition is read separately, by its own client, because
a client that has failed returns to the same batch.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Final, Protocol

from evaltap.evaluator.ingest.topics.clients import Poller

if TYPE_CHECKING:
    from kafka.structs import TopicPartition

PROBE_MS: Final = 5_000


class _Client(Poller, Protocol):
    """What is used of `KafkaConsumer`."""

    def end_offsets(self, places: Sequence["TopicPartition"]) -> Mapping["TopicPartition", int]: ...

    def assign(self, places: Sequence["TopicPartition"]) -> None: ...

    def seek(self, place: "TopicPartition", offset: int) -> None: ...

    def close(self) -> None: ...


Connect = Callable[[], _Client]
"""Creates a client without assigned partitions."""


def is_unreadable(error: Exception) -> bool:
    """Return whether an error of the client's `poll` means that records are damaged.

    A missing codec does not count: once it is installed, the records can be read.
    """
    from kafka.errors import CorruptRecordError, KafkaError

    return isinstance(error, CorruptRecordError) or not isinstance(error, KafkaError)


def unreadable_ranges(
    connect: Connect, positions: Mapping["TopicPartition", int]
) -> dict["TopicPartition", tuple[int, int]]:
    """Return the partitions whose next record cannot be unpacked, with the range of unreadable offsets.

    The end of a range is the next readable offset.  Other errors of the client are raised.
    """
    with closing(connect()) as client:
        ends = client.end_offsets(list(positions))
    return {
        place: (first, _next_readable(connect, place, first, ends[place]))
        for place, first in positions.items()
        if first < ends[place] and not _reads(connect, place, first)
    }


def _next_readable(connect: Connect, place: "TopicPartition", unreadable: int, end: int) -> int:
    """Return the first readable offset after `unreadable`, or `end` if there is none."""
    step = 1
    while (readable := min(unreadable + step, end)) < end and not _reads(connect, place, readable):
        unreadable, step = readable, step * 2
    while readable - unreadable > 1:
        middle = (unreadable + readable) // 2
        if _reads(connect, place, middle):
            readable = middle
        else:
            unreadable = middle
    return readable


def _reads(connect: Connect, place: "TopicPartition", offset: int) -> bool:
    """Return whether the record at an offset can be unpacked; no answer counts as readable."""
    with closing(connect()) as client:
        client.assign([place])
        client.seek(place, offset)
        try:
            client.poll(timeout_ms=PROBE_MS, max_records=1)
        except Exception as error:  # decoding damaged bytes may raise anything
            if not is_unreadable(error):
                raise
            return False
        return True
