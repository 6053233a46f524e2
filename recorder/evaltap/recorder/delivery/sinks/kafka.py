"""The Kafka sink: every record goes to a spool on disk first, and from there to the topic.

The agent's process never waits for a broker: `append` only writes to the local disk. A forwarder
thread advances only when the broker has acknowledged. However long a broker is down, nothing is
lost until the spool is full; what a process leaves behind, the next one sends.

Constraints of kafka-python 3 that shape this: its producer's memory is unbounded, its constructor
and first `send` block while the broker is down, and a forked child's inherited producer sends
nothing. So only the forwarder uses it, with a bound of its own, and a child creates its own.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from evaltap.recorder.delivery.sinks.local_log import DEFAULT_MAX_BYTES, LocalLogSink
from evaltap.recorder.delivery.spool.forwarder import ACK_SECONDS, Forwarder, is_case
from evaltap.recorder.delivery.spool.spool import new_spool
from evaltap.recorder.faults import RecordRefusedError, SinkError
from evaltap.schemas.log.folders import spool_folder
from evaltap.schemas.log.kafka_clients import Answer, close_producer, kafka_producer
from evaltap.schemas.log.kafka_settings import settings_blamed
from evaltap.schemas.log.location import KafkaLocation
from evaltap.schemas.wire.record import WireRecord

CONNECT_SECONDS = 5.0
_INHERITED: list[object] = []
"""Objects of a forked process's parent: closing them here could touch the parent's files."""


class KafkaSink:
    """Append to a spool in front of the topic of `location`; `max_bytes` limits the spool."""

    def __init__(self, location: KafkaLocation, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._location = location
        self._max_bytes = max_bytes
        self._pid = 0
        self._local: LocalLogSink | None = None
        self._forwarder: Forwarder | None = None

    def append(self, records: Sequence[WireRecord]) -> None:
        """Append the records to the spool; raises SinkError when disk or settings prevent it."""
        local, forwarder = self._open()
        local.append(records)
        forwarder.added(sum(is_case(record) for record in records))

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the broker has acknowledged everything appended, up to the timeout."""
        return self._forwarder is None or self._forwarder.drained(timeout_seconds)

    def backlog(self) -> int:
        """Return how many appended cases are not acknowledged, including quarantined ones."""
        return self._forwarder.waiting if self._forwarder is not None else 0

    def unsent(self) -> int:
        """Return how many cases wait in the spool, without quarantined ones."""
        return self._forwarder.unsent if self._forwarder is not None else 0

    def refused(self) -> Mapping[Path, int]:
        """Return how many cases the broker permanently refused, by the file that holds them."""
        return self._forwarder.refused if self._forwarder is not None else {}

    def fatal_error(self) -> Exception | None:
        """Return what aborted the last `flush` and no retry can fix: a setting, a missing package."""
        return self._forwarder.fatal_error if self._forwarder is not None else None

    def close(self) -> None:
        """Stop forwarding; unsent records stay in the spool for the next process."""
        if self._is_inherited():
            self._abandon()
        if self._forwarder is not None:
            self._forwarder.stop()
        # Keep the forwarder: it knows how many cases are left.
        local, self._local = self._local, None
        if local is not None:
            local.close()

    def _open(self) -> "tuple[LocalLogSink, Forwarder]":
        if self._is_inherited():
            self._abandon()
        if self._local is None or self._forwarder is None:
            try:
                spool = new_spool(spool_folder(self._location))
            except OSError as error:
                raise SinkError(f"cannot create a spool: {error}; set EVALTAP_SPOOL_DIR") from error
            self._pid = os.getpid()
            self._local = LocalLogSink(
                spool.path, max_bytes=self._max_bytes, remedy="restart the broker"
            )
            self._forwarder = Forwarder(lambda: TopicProducer(self._location), spool)
            self._forwarder.start()
        return self._local, self._forwarder

    def _is_inherited(self) -> bool:
        """Return whether the open files belong to the parent of this forked process."""
        return self._forwarder is not None and self._pid != os.getpid()

    def _abandon(self) -> None:
        _INHERITED.append((self._local, self._forwarder))
        self._local = self._forwarder = None


class TopicProducer:
    """A producer for a location's topic; created on the thread that uses it, since it blocks."""

    def __init__(self, location: KafkaLocation) -> None:
        self._topic = location.topics[0]
        self._producer = kafka_producer(
            location,
            client_id="evaltap-recorder",
            connect_seconds=CONNECT_SECONDS,
            ack_seconds=ACK_SECONDS,
            max_request_size=2 << 20,
            linger_ms=5,
        )

    def send(self, record: WireRecord) -> "TopicAnswer":
        """Start sending a record."""
        from kafka.errors import MessageSizeTooLargeError

        headers = list(record.headers)
        try:
            with settings_blamed():
                future = self._producer.send(
                    self._topic, key=record.key, value=record.value, headers=headers
                )
            return TopicAnswer(future)
        except MessageSizeTooLargeError as error:
            raise RecordRefusedError(str(error)) from error

    def close(self) -> None:
        """Disconnect from the cluster."""
        close_producer(self._producer)


class TopicAnswer:
    """The broker's pending answer for one record."""

    __slots__ = ("_future",)

    def __init__(self, future: Answer) -> None:
        self._future = future

    def wait(self, timeout_seconds: float) -> bool:
        """Return whether the broker has acknowledged within the timeout."""
        from kafka.errors import (
            InvalidRecordError,
            KafkaTimeoutError,
            MessageSizeTooLargeError,
            RecordListTooLargeError,
        )

        try:
            self._future.get(timeout=timeout_seconds)
        except (InvalidRecordError, MessageSizeTooLargeError, RecordListTooLargeError) as error:
            raise RecordRefusedError(str(error)) from error
        except KafkaTimeoutError:
            # The future's own timeout and that of this call raise the same exception.
            if self._future.failed():
                raise
            return False
        return True
