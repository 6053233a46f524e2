"""The sink over Kafka: every record goes to a spool on disk first, and from there to the topic.

The agent's process never waits for a broker: `append` ends at the local disk.  A forwarder thread of
its own reads the spool, keeps a bounded number of records and bytes in flight, and moves on only when
the broker has acknowledged, in order.  However long a broker is away, nothing is lost until the spool
is full; what a process leaves behind is sent by the next one.

Facts of kafka-python 3 that shape this: its producer has no bound on memory, its constructor and its
first `send` block while the broker is down, and a forked child's inherited producer sends nothing.  So
only the forwarder touches it, with its own bound, and a child makes its own.
"""

import os
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from evaltap.recorder.errors import Faults
from evaltap.recorder.sinks.base import SinkError
from evaltap.recorder.sinks.local_log import DEFAULT_MAX_BYTES, LocalLogSink
from evaltap.recorder.spool import Spool, new_spool, orphans, spool_folder
from evaltap.schemas.errors import InputError
from evaltap.schemas.local_log import LocalLog, open_log
from evaltap.schemas.log_location import KafkaLocation, kafka_settings
from evaltap.schemas.record import CASE_TYPE, WireRecord

IN_FLIGHT_RECORDS = 500
IN_FLIGHT_BYTES = 8 << 20
ACK_SECONDS = 30.0
CURSOR = "kafka"
POLL_SECONDS = 0.5
LONGEST_BACKOFF_SECONDS = 5.0
Result = TypeVar("Result")
_INHERITED: list[Any] = []
"""What belongs to the parent of a forked process: closing it here could touch the parent's files."""


class KafkaSink:
    """Append to a spool in front of the first topic of `location`; `max_bytes` bounds the spool."""

    def __init__(self, location: KafkaLocation, *, max_bytes: int = DEFAULT_MAX_BYTES) -> None:
        self._location = location
        self._max_bytes = max_bytes
        self._pid = 0
        self._local: LocalLogSink | None = None
        self._forwarder: _Forwarder | None = None

    def append(self, records: Sequence[WireRecord]) -> None:
        """Take the records onto the spool; SinkError when disk or settings do not allow it."""
        local, forwarder = self._open()
        local.append(records)
        forwarder.added(sum(record.header("ce_type") == CASE_TYPE for record in records))

    def flush(self, timeout_seconds: float) -> bool:
        """Wait until the broker has acknowledged all that was taken, as far as the time allows."""
        return self._forwarder is None or self._forwarder.drained(timeout_seconds)

    def backlog(self) -> int:
        """Return how many cases were taken and are not yet acknowledged."""
        return self._forwarder.waiting if self._forwarder is not None else 0

    def close(self) -> None:
        """Stop forwarding; what was not sent stays on the spool for the next process."""
        local, forwarder = self._local, self._forwarder
        self._local = self._forwarder = None
        if self._pid != os.getpid():
            _INHERITED.append((local, forwarder))
            return
        if forwarder is not None:
            forwarder.stop()
        if local is not None:
            local.close()

    def _open(self) -> "tuple[LocalLogSink, _Forwarder]":
        if self._pid != os.getpid() and self._local is not None:
            self.close()
        if self._local is None or self._forwarder is None:
            try:
                folder = spool_folder("-".join(self._location.topics))
                spool = new_spool(folder)
            except OSError as error:
                raise SinkError(f"cannot make a spool: {error}; set EVALTAP_SPOOL_DIR") from error
            self._pid = os.getpid()
            self._local = LocalLogSink(spool.path, max_bytes=self._max_bytes)
            self._forwarder = _Forwarder(self._location, spool)
            self._forwarder.start()
        return self._local, self._forwarder


class _Forwarder:
    """Moves spools to the topic, on one thread; the spool of this process first."""

    def __init__(self, location: KafkaLocation, spool: Spool) -> None:
        self._location = location
        self._spool = spool
        self._stopping = threading.Event()
        self._woken = threading.Event()
        self._progress = threading.Condition()
        self._waiting = 0
        self._producer: Any = None
        self._faults = Faults()
        self._backoff = 0.0
        self._thread = threading.Thread(target=self._run, name="evaltap-kafka", daemon=True)

    @property
    def waiting(self) -> int:
        """Cases that were added and are not yet acknowledged."""
        return self._waiting

    def start(self) -> None:
        self._thread.start()

    def added(self, cases: int) -> None:
        """Learn that cases lie on the spool."""
        with self._progress:
            self._waiting += cases
        self._woken.set()

    def drained(self, timeout_seconds: float) -> bool:
        """Wait until nothing waits, at most so long."""
        self._woken.set()
        with self._progress:
            return self._progress.wait_for(lambda: self._waiting <= 0, timeout_seconds)

    def stop(self, timeout_seconds: float = 1.0) -> None:
        """End the thread; it may be in the middle of waiting for a broker, and is left behind then."""
        self._stopping.set()
        self._woken.set()
        self._thread.join(timeout_seconds)

    def _run(self) -> None:
        with _Reader(self._spool) as own:
            self._guarded(self._adopt_orphans, None)
            while not self._stopping.is_set():
                if not self._guarded(lambda: self._forward(own), False):
                    self._woken.wait(POLL_SECONDS)
                    self._woken.clear()
            self._guarded(lambda: self._forward(own), False)
            empty = self._guarded(own.is_empty, False)
        self._close_producer()
        if empty:
            self._spool.remove()
        else:
            self._spool.release()

    def _adopt_orphans(self) -> None:
        for spool in orphans(self._spool.path.parent):
            self._adopt(spool)

    def _guarded(self, step: Callable[[], Result], otherwise: Result) -> Result:
        """Take a step; whatever client or disk do, the thread lives on and the spool stays."""
        try:
            return step()
        except Exception as error:
            self._failed(error)
            return otherwise

    def _failed(self, error: Exception) -> None:
        """Note a failure and wait longer after each in a row."""
        self._faults.report("kafka", error)
        self._faults.log(time.monotonic())
        self._backoff = min(LONGEST_BACKOFF_SECONDS, self._backoff * 2 or 0.1)
        self._stopping.wait(self._backoff)

    def _adopt(self, spool: Spool) -> None:
        """Send what an ended process left, and delete its spool; a broker that is away can wait."""
        with _Reader(spool) as left:
            while not self._stopping.is_set() and self._guarded(
                lambda: self._forward(left, counted=False), False
            ):
                pass
            empty = self._guarded(left.is_empty, False)
        if empty:
            spool.remove()
        else:
            spool.release()

    def _forward(self, spool: "_Reader", *, counted: bool = True) -> bool:
        """Send the next records; return whether any were acknowledged."""
        batch = spool.next()
        if not batch:
            return False
        done = self._send(batch, spool)
        if done:
            spool.sent(batch[done - 1][0])
            cases = sum(record.header("ce_type") == CASE_TYPE for _, record in batch[:done])
            with self._progress:
                self._waiting -= cases if counted else 0
                self._progress.notify_all()
        if done == len(batch):
            self._backoff = 0.0
        return done > 0

    def _send(self, batch: Sequence[tuple[int, WireRecord]], spool: "_Reader") -> int:
        """Send records and wait for them in order; return how many are dealt with."""
        from kafka.errors import KafkaError, MessageSizeTooLargeError, RecordListTooLargeError

        never = (MessageSizeTooLargeError, RecordListTooLargeError)
        done = 0
        try:
            producer = self._connected()
            # Too large a record is refused by `send` itself, or later by the broker.
            answers = [self._begin(producer, record, never) for _, record in batch]
            for (_, record), answer in zip(batch, answers, strict=True):
                try:
                    if answer is None:
                        spool.reject(record)
                    else:
                        answer.get(timeout=ACK_SECONDS)
                except never:
                    # The broker will never take it: set aside, so that it holds up nobody.
                    spool.reject(record)
                done += 1
        except KafkaError as error:
            # Whatever state the producer is in, the next try starts from the spool with a new one.
            self._close_producer()
            self._failed(error)
        return done

    def _begin(self, producer: Any, record: WireRecord, never: tuple[type[Exception], ...]) -> Any:
        """Start sending a record; return the broker's answer to come, None when it is refused."""
        headers = list(record.headers)
        try:
            return producer.send(
                self._location.topics[0], key=record.key, value=record.value, headers=headers
            )
        except never:
            return None

    def _connected(self) -> Any:
        if self._producer is None:
            from kafka import KafkaProducer

            settings: dict[str, Any] = {
                "bootstrap_servers": list(self._location.brokers),
                "client_id": "evaltap-recorder",
                "compression_type": _compression(),
                "max_request_size": 2 << 20,
                "max_block_ms": 5_000,
                "bootstrap_timeout_ms": 5_000,
                "delivery_timeout_ms": int(ACK_SECONDS * 1000),
                "request_timeout_ms": 10_000,
                "linger_ms": 5,
                **kafka_settings(KafkaProducer.DEFAULT_CONFIG),
            }
            self._producer = KafkaProducer(**settings)
        return self._producer

    def _close_producer(self) -> None:
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close(timeout=0.5)
            except Exception:
                # A producer that cannot even close has nothing of ours: the spool has it all.
                return


class _Reader:
    """A spool as the forwarder reads it."""

    def __init__(self, spool: Spool) -> None:
        self._spool = spool
        self._log: LocalLog | None = None
        self._rejected: LocalLog | None = None
        self._next = 0

    def __enter__(self) -> "_Reader":
        return self

    def __exit__(self, *_: object) -> None:
        for log in (self._log, self._rejected):
            if log is not None:
                log.close()

    def next(self) -> list[tuple[int, WireRecord]]:
        """Return the records to send next, within the bound on what may be in flight."""
        log = self._opened()
        if log is None:
            return []
        batch: list[tuple[int, WireRecord]] = []
        size = 0
        for offset, record in log.read(self._next, IN_FLIGHT_RECORDS):
            size += record.size
            if batch and size > IN_FLIGHT_BYTES:
                break
            batch.append((offset, record))
        return batch

    def sent(self, offset: int) -> None:
        """Remember that everything up to `offset` is acknowledged, and free its space."""
        log = self._opened()
        assert log is not None
        log.move_cursor(CURSOR, offset + 1)
        log.trim(offset + 1)
        self._next = offset + 1

    def reject(self, record: WireRecord) -> None:
        """Set a record aside."""
        if self._rejected is None:
            self._rejected = open_log(self._spool.rejected_path, mode="append")
        self._rejected.append([record])

    def is_empty(self) -> bool:
        """Tell whether nothing is left to send."""
        return not self.next()

    def _opened(self) -> LocalLog | None:
        if self._log is None:
            if not self._spool.path.exists():
                return None
            try:
                self._log = open_log(self._spool.path, mode="append")
            except InputError:
                return None
            self._next = self._log.cursor(CURSOR)
        return self._log


def _compression() -> str:
    """Return the best compression that is installed; gzip always is."""
    from kafka.codec import has_zstd

    return "zstd" if has_zstd() else "gzip"
