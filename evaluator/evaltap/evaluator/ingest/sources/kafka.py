"""Read topics of a Kafka cluster, with assigned partitions and the offsets in the store.

There is no consumer group: the process that owns the DuckDB file stores the offsets in it, so nothing needs
to be rebalanced or committed.  A partition that is added later is read from its start.

kafka-python asks the brokers for everything but records, and finds the records that cannot be unpacked.  A
`Fetcher` gets the records: with kafka-python too, or with librdkafka (`librdkafka.py`), which is faster.
"""

import logging
import time
from collections.abc import Callable, Collection, Mapping, Sequence, Set
from contextlib import closing
from functools import partial
from typing import Any, Final, Protocol, TypeVar

from kafka import KafkaConsumer
from kafka.errors import CorruptRecordError, KafkaError
from kafka.structs import TopicPartition

from evaltap.evaluator.ingest.sources.base import (
    BATCH_BYTES,
    Bounds,
    Partition,
    SourceBatch,
    SourceRecord,
)
from evaltap.evaluator.ingest.sources.positions import LogPosition, recreated
from evaltap.evaluator.ingest.topics.clients import (
    COMMITTED,
    Poller,
    Question,
    ask_offsets,
    is_transient,
    poll_or_nothing,
    retry_transient,
    wire_record,
)
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.log.kafka_clients import kafka_client
from evaltap.schemas.log.location import KafkaClientName, KafkaLocation

T = TypeVar("T")

REFRESH_SECONDS = 30.0
"""How often the source checks for new partitions."""

CHECK_SECONDS = 1.0
"""How often an idle source checks whether a topic was recreated."""

ASK_SECONDS = 10.0
"""How often an idle source asks whether a broker answers: clients return no records if none does."""

ANSWER_SECONDS = 3.0

SILENT_SECONDS = 60.0
"""How long brokers may fail to return a log's bounds, as while leaders change or brokers restart."""

AT_ONCE_MS = 2_000
"""How long a caller that does not wait for a broker waits for its answer; the client's own limit is 30 s."""

_LOG = logging.getLogger("evaltap.kafka")

RECORDS_PER_POLL = 250
"""Records taken from the client before their size is checked."""

FETCH_BYTES = 2 << 20
"""The compressed size of a broker's response; in memory, unpacked records take ten times as much."""


class Fetcher(Protocol):
    """Gets the records of partitions; belongs to the thread that polls, except for `close`."""

    def start(self, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        """Read these partitions and no others, each from its offset, except for the `paused` ones."""

    def fetch(
        self, timeout_ms: int, max_records: int
    ) -> Mapping[Partition, Sequence[SourceRecord]]:
        """Return the next records of each partition in order; none while no broker answers.

        Raises an error for which `is_unreadable` is true when the next records cannot be unpacked, and
        KafkaError when brokers refuse to return records.
        """
        ...

    def position(self, partition: Partition) -> int | None:
        """Return the offset that is read next, None while it is unknown; do not wait for brokers.

        It is ahead of the last record where the client skipped transaction markers.
        """

    def pause(self, paused: Collection[Partition]) -> None:
        """Stop reading these partitions, and resume all others."""

    def close(self) -> None:
        """Close the connections; a `fetch` that waits in another thread returns."""


class PythonFetcher:
    """A `Fetcher` with a client of kafka-python, which its owner closes."""

    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    def start(self, positions: Mapping[Partition, int], paused: Collection[Partition]) -> None:
        self._consumer.assign([TopicPartition(*partition) for partition in positions])
        for partition, offset in positions.items():
            self._consumer.seek(TopicPartition(*partition), offset)
        self.pause(paused)

    def fetch(
        self, timeout_ms: int, max_records: int
    ) -> Mapping[Partition, Sequence[SourceRecord]]:
        """See `Fetcher`.  Returns the records of at most one response, though others may be ready."""
        found = poll_or_nothing(self._consumer, timeout_ms, max_records)
        return {
            (partition := Partition(*place)): [_record(partition, one) for one in messages]
            for place, messages in found.items()
        }

    def position(self, partition: Partition) -> int | None:
        found: int | None = self._consumer.position(TopicPartition(*partition), timeout_ms=0)
        return found

    def pause(self, paused: Collection[Partition]) -> None:
        self._consumer.resume(*self._consumer.paused())
        self._consumer.pause(*(TopicPartition(*partition) for partition in paused))

    def close(self) -> None:
        """Do nothing: the owner closes the client."""


class KafkaSource:
    """Reads the topics of `location`, starting at the oldest records unless `seek` sets other offsets.

    Reads all partitions of each topic, or only those numbered in `partitions`.  With `to_end`, the source
    asks the brokers whether an empty batch has `more` records to follow.  Raises InputError if no broker
    answers within `timeout_seconds`, for a partition that does not exist and, with `to_end`, for a topic that
    does not exist.  Without `to_end`, it logs a warning and waits for the topic.  `client` is the package
    that fetches the records.
    """

    def __init__(
        self,
        location: KafkaLocation,
        *,
        partitions: Collection[int] | None = None,
        to_end: bool = False,
        timeout_seconds: float = 10.0,
        client: KafkaClientName = "kafka-python",
    ) -> None:
        self._location = location
        self._client = client
        self._partitions = None if partitions is None else frozenset(partitions)
        self._timeout_seconds = timeout_seconds
        self._to_end = to_end
        self._silent_since: float | None = None
        self._offsets: dict[Partition, int] = {}
        self._known: set[Partition] = set()
        self._next: dict[Partition, int] = {}
        """The expected next offset of each partition."""
        self._paused: Collection[Partition] = ()
        self._is_moved = False
        """Whether the fetcher has to start again at `_next`."""
        self._refresh_at = self._check_at = self._ask_at = 0.0
        self._away = False
        try:
            self._open()
        except KafkaError as error:
            raise InputError(
                f"{location}: no broker answers ({error}); check address and settings"
            ) from None
        try:
            self._report_missing_topics()
        except InputError:
            self.close()
            raise

    def _report_missing_topics(self) -> None:
        if missing := self.missing_topics():
            named = f"{self._location}: no such topic: {', '.join(missing)}"
            if self._to_end:
                raise InputError(f"{named}; check the name, or record to it first")
            _LOG.warning("%s; waiting until it exists", named)

    def _open(self) -> None:
        """Connect the clients; raise KafkaError if no broker answers."""
        self._fetcher: Fetcher
        self._partitions_there = Question(self._ask_partitions)
        if self._client == "kafka-python":
            self._consumer = self._connect()
            self._fetcher = PythonFetcher(self._consumer)
            return
        from evaltap.evaluator.ingest.sources import librdkafka  # an optional package

        settings = librdkafka.librdkafka_settings(
            self._location
        )  # checked before brokers are asked
        self._consumer = self._connect()
        try:
            self._fetcher = librdkafka.LibrdkafkaFetcher(settings)
        except ConfigurationError:
            self._consumer.close()
            raise

    def _connect(self) -> Any:
        """Return a client without assigned partitions; raise KafkaError if no broker answers."""
        return kafka_client(
            KafkaConsumer,
            KafkaConsumer.DEFAULT_CONFIG,
            self._location,
            client_id="evaltap-evaluator",
            connect_seconds=self._timeout_seconds,
            group_id=None,
            enable_auto_commit=False,
            # Never `latest`: records written before the first start would be lost silently.
            auto_offset_reset="earliest",
            isolation_level=COMMITTED,
            fetch_max_bytes=FETCH_BYTES,
            max_partition_fetch_bytes=FETCH_BYTES // 8,
        )

    @property
    def cluster_id(self) -> str | None:
        """The id of the cluster; None if it has none."""
        found = getattr(self._consumer._cluster, "cluster_id", None)
        return str(found) if found else None

    def seek(self, offsets: Mapping[Partition, int]) -> None:
        """Continue at these offsets; partitions without an offset are read from their start."""
        self._offsets = dict(offsets)
        self._known.clear()
        self._refresh()

    def poll(self, max_records: int, timeout_seconds: float) -> SourceBatch:
        """Return the next records; none while no broker answers.

        Raises InputError if the log is read to its end and no broker tells where that is.
        """
        if time.monotonic() >= self._refresh_at:
            self._refresh()
        if not self._known:
            time.sleep(timeout_seconds)
            self._refresh_at = 0.0
            return SourceBatch(away=self._away)
        records: list[SourceRecord] = []
        size = 0
        next_offsets: dict[Partition, int] = {}
        gaps: list[str] = []
        wait = int(timeout_seconds * 1000)
        while True:
            try:
                found = self._fetcher.fetch(wait, min(RECORDS_PER_POLL, max_records - len(records)))
            except Exception as error:
                if not is_unreadable(error):
                    raise
                gaps += self._skip_unreadable(error, next_offsets)
                break
            if not found:
                if not records and self._is_check_due():
                    gaps += self._check_positions(next_offsets)
                break
            wait = 0
            for partition, fetched in found.items():
                if fetched[0].offset < self._next.get(partition, 0):
                    gaps.append(self._restart_partition(partition, fetched[0].offset, next_offsets))
                    continue
                gaps += self._gap(partition, fetched[0].offset)
                records += fetched
                size += sum(len(one.record.value or b"") for one in fetched)
                next_offsets[partition] = self._next[partition] = fetched[-1].offset + 1
            if len(records) >= max_records or size >= BATCH_BYTES or self._is_moved:
                break
        if self._is_moved:
            self._start()
        more = self._to_end and not records and self._is_behind()
        self._notice_silence(read=bool(records))
        return SourceBatch(
            tuple(records), next_offsets, gaps=tuple(gaps), more=more, away=self._away
        )

    def _notice_silence(self, *, read: bool) -> None:
        """Ask at times whether a broker answers, unless records were just `read`; log changes."""
        if self._to_end or not (read or time.monotonic() >= self._ask_at):
            return
        error = None if read else self._unanswered()
        self._ask_at = time.monotonic() + ASK_SECONDS
        self._set_away(error)

    def _set_away(self, error: KafkaError | None) -> None:
        if error is not None and not self._away:
            _LOG.warning("%s: no broker answers (%s); waiting for one", self._location, error)
        elif error is None and self._away:
            _LOG.warning("%s: brokers answer again", self._location)
        self._away = error is not None

    def _unanswered(self) -> KafkaError | None:
        """Return why no broker says where the partitions end; None if one does."""
        places = [TopicPartition(*partition) for partition in self._known]
        ask = partial(self._consumer.end_offsets, timeout_ms=int(ANSWER_SECONDS * 1000))
        try:
            ask_offsets(ask, places)
        except KafkaError as error:
            return error
        return None

    def _start(self) -> None:
        self._fetcher.start(self._next, self._paused)
        self._is_moved = False

    def _is_check_due(self) -> bool:
        # The batch that ends a log read `to_end` is the last that can store the offset after its markers.
        if self._to_end:
            return True
        now = time.monotonic()
        due = now >= self._check_at
        if due:
            self._check_at = now + CHECK_SECONDS
        return due

    def _skip_unreadable(self, error: Exception, next_offsets: dict[Partition, int]) -> list[str]:
        """Skip records that the client cannot unpack, with a new client; return a message for each range."""
        reports = []
        positions = {TopicPartition(*one): offset for one, offset in self._next.items()}
        for place, (first, behind) in unreadable_ranges(self._connect, positions).items():
            next_offsets[Partition(*place)] = self._next[Partition(*place)] = behind
            reports.append(
                f"{place.topic}[{place.partition}]: records {first} to {behind - 1} cannot be unpacked"
                f" ({type(error).__name__}: {error}) and were never landed"
            )
        if not reports and self._client != "kafka-python":
            raise InputError(
                f"{self._location}: {self._client} cannot unpack records that kafka-python can ({error});"
                " start again with --kafka-client kafka-python"
            )
        self.close()
        self._open()
        self._is_moved = True
        return reports

    def _check_positions(self, next_offsets: dict[Partition, int]) -> list[str]:
        """Compare the client's positions with the expected offsets; return messages about differences.

        To the client, a recreated topic is a truncated log: it continues at the new end.  Its position is
        ahead after records that it does not return: transaction markers and aborted records.
        """
        reports = []
        for partition, expected in self._next.items():
            position = self._fetcher.position(partition)
            if position is not None and position < expected:
                reports.append(self._restart_partition(partition, position, next_offsets))
            elif position is not None and position > expected:
                reports += self._gap(partition, position)
                next_offsets[partition] = self._next[partition] = position
        return reports

    def _restart_partition(
        self, partition: Partition, end: int, next_offsets: dict[Partition, int]
    ) -> str:
        """Go to the start of a recreated partition; return a message about it."""
        message = recreated(f"{partition.topic}[{partition.number}]", self._next[partition], end)
        next_offsets[partition] = self._next[partition] = self._start_of(partition)
        self._is_moved = True
        return message

    def _gap(self, partition: Partition, found: int) -> list[str]:
        """Return a message if retention deleted records between the expected offset and `found`.

        The client then continues at the start of the log silently.  Offsets are also missing where records
        were compacted or belong to transactions; in that case, the log still holds earlier records.
        """
        expected = self._next.get(partition, found)
        if found <= expected:
            return []
        start = self._start_of(partition)
        gap = LogPosition(partition, Bounds(start, max(start, found)), expected).gap
        return [gap] if gap else []

    def _start_of(self, partition: Partition) -> int:
        place = TopicPartition(*partition)
        return self._offsets_of(self._consumer.beginning_offsets, [place])[place]

    def missing_topics(self) -> Sequence[str]:
        """Return the topics that do not exist or that this user may not see."""
        there = {place.topic for place in self._retried(self._places)}
        return [topic for topic in self._location.topics if topic not in there]

    def bounds(self, *, waits: bool = True) -> Mapping[Partition, Bounds]:
        places = self._retried(self._places, SILENT_SECONDS if waits else 0.0)
        starts = self._offsets_of(self._consumer.beginning_offsets, places, waits=waits)
        ends = self._offsets_of(self._consumer.end_offsets, places, waits=waits)
        return {
            Partition(place.topic, place.partition): Bounds(starts[place], ends[place])
            for place in places
        }

    def behind(self) -> Collection[Partition]:
        """Return the partitions that hold records which `poll` has not returned yet."""
        try:
            return self._unread()
        except KafkaError:
            # Unknown: treat no topic as read to its end.  Each has at least partition 0.
            return self._known.union(Partition(topic, 0) for topic in self._location.topics)

    def _is_behind(self) -> bool:
        try:
            behind = bool(self._unread())
            self._silent_since = None
        except KafkaError as error:
            now = time.monotonic()
            self._silent_since = self._silent_since or now
            if now - self._silent_since < SILENT_SECONDS:
                return True  # perhaps a broker is being restarted
            raise self._no_broker_error(error) from None
        return behind

    def _unread(self) -> Collection[Partition]:
        places = self._places()
        ends = ask_offsets(self._consumer.end_offsets, places)
        return [
            Partition(place.topic, place.partition)
            for place in places
            if Partition(place.topic, place.partition) not in self._known
            or (self._fetcher.position(Partition(*place)) or 0) < ends[place]
        ]

    def _offsets_of(
        self, ask: Callable[..., Mapping[Any, int]], places: Sequence[Any], *, waits: bool = True
    ) -> Mapping[Any, int]:
        seconds, timeout_ms = (SILENT_SECONDS, None) if waits else (0.0, AT_ONCE_MS)
        return self._retried(
            lambda: ask_offsets(partial(ask, timeout_ms=timeout_ms), places), seconds
        )

    def _retried(self, ask: Callable[[], T], seconds: float = SILENT_SECONDS) -> T:
        """Return the brokers' answer, retrying while brokers fail or elect leaders."""
        try:
            return retry_transient(ask, seconds)
        except KafkaError as error:
            raise self._no_broker_error(error) from None

    def _no_broker_error(self, error: Exception) -> InputError:
        return InputError(
            f"{self._location}: no broker returns the bounds of the log ({error}); the records read so far"
            " have landed, start again for the rest"
        )

    def pause(self, partitions: Collection[Partition]) -> None:
        """Stop fetching these partitions, and resume all others."""
        self._paused = frozenset(partitions)
        self._fetcher.pause(self._paused)

    def close(self) -> None:
        self._fetcher.close()
        self._consumer.close()

    def _places(self) -> list[Any]:
        """Return the partitions of the topics; raise KafkaError if no broker answers."""
        there = self._partitions_there.answer(ANSWER_SECONDS)
        return [
            TopicPartition(topic, number)
            for topic in self._location.topics
            for number in self._numbers(topic, there[topic])
        ]

    def _ask_partitions(self) -> Mapping[str, Set[int]]:
        ask = self._consumer.partitions_for_topic
        return {topic: set(ask(topic) or ()) for topic in self._location.topics}

    def _numbers(self, topic: str, there: Set[int]) -> Sequence[int]:
        """Return the numbers of a topic's partitions to read; raise InputError if one does not exist."""
        if self._partitions is None or not there:
            return sorted(there)
        if lacking := sorted(self._partitions - there):
            raise InputError(
                f"{self._location}: {topic} has partitions {min(there)} to {max(there)}, but not"
                f" {', '.join(map(str, lacking))}; name existing ones with --partitions"
            )
        return sorted(self._partitions)

    def _refresh(self) -> None:
        """Assign new partitions; known ones keep their position.

        Without `to_end`, brokers that do not answer are ignored until the next refresh.
        """
        self._refresh_at = time.monotonic() + REFRESH_SECONDS
        try:
            places = self._retried(self._places) if self._to_end else self._places()
        except KafkaError as error:
            if not is_transient(error):
                raise
            self._set_away(error)
            return
        if not self._known:
            self._set_away(None)
        fresh = [p for p in places if Partition(p.topic, p.partition) not in self._known]
        if not fresh:
            return
        starts = self._offsets_of(self._consumer.beginning_offsets, fresh)
        ends = self._offsets_of(self._consumer.end_offsets, fresh)
        for place in fresh:
            partition = Partition(place.topic, place.partition)
            wanted = self._offsets.get(partition, 0)
            # Beyond the end: the topic was recreated, so its records have not been read yet.
            inside = starts[place] <= wanted <= ends[place]
            self._next[partition] = wanted if inside else starts[place]
            self._known.add(partition)
        self._start()


def _record(partition: Partition, message: Any) -> SourceRecord:
    time_ms = message.timestamp if message.timestamp >= 0 else None
    return SourceRecord(partition, message.offset, wire_record(message), time_ms)


PROBE_MS: Final = 5_000


class _Client(Poller, Protocol):
    """What is used of `KafkaConsumer`."""

    def end_offsets(self, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]: ...

    def assign(self, places: Sequence[TopicPartition]) -> None: ...

    def seek(self, place: TopicPartition, offset: int) -> None: ...

    def close(self) -> None: ...


Connect = Callable[[], _Client]
"""Creates a client without assigned partitions."""


def is_unreadable(error: Exception) -> bool:
    """Return whether an error of the client's `poll` means that records are damaged.

    A missing codec does not count: once it is installed, the records can be read.
    """
    return isinstance(error, CorruptRecordError) or not isinstance(error, KafkaError)


def unreadable_ranges(
    connect: Connect, positions: Mapping[TopicPartition, int]
) -> dict[TopicPartition, tuple[int, int]]:
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


def _next_readable(connect: Connect, place: TopicPartition, unreadable: int, end: int) -> int:
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


def _reads(connect: Connect, place: TopicPartition, offset: int) -> bool:
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
