"""Writes to a sink that may fail: rejected batches wait, within bounds, and are retried.

Beyond the bounds the newest turns are dropped and counted, without a sequence number.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from evaltap.recorder.assembly.contexts import ContextMemory
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.case_processor import CaseProcessor, is_trial
from evaltap.recorder.delivery.counters import LiveCounters
from evaltap.recorder.delivery.event_queue import Deadline
from evaltap.recorder.delivery.record_writer import RecordWriter
from evaltap.recorder.delivery.session_hold import SessionHold
from evaltap.recorder.delivery.sinks.base import Sink
from evaltap.recorder.faults import DropCaseError, Faults
from evaltap.recorder.pacing import yield_to_agent
from evaltap.recorder.threads import allocate_lock, sleep
from evaltap.schemas.data import CaseData
from evaltap.schemas.wire.feedback import Feedback
from evaltap.schemas.wire.record import WireRecord, encode_feedback

LOG_BATCHES = 8
"""A batch is at most 1/LOG_BATCHES of the log's limit, since the log may exceed it by one batch."""
BATCH_RECORDS = 500
WAITING_RECORDS = 5_000
"""How many turns may wait for the sink, and how many comments."""
FIRST_RETRY_SECONDS, LONGEST_RETRY_SECONDS = 0.1, 5.0


class RetryingWriter:
    """Writes a recorder's turns and feedback to its sink; used by the background thread.

    `fork_lock` is held while the sink works, so that a fork can wait until it is free.
    """

    def __init__(
        self,
        config: RecorderConfig,
        sink: Sink,
        processor: CaseProcessor,
        counters: LiveCounters,
        faults: Faults,
        *,
        producer_id: str | None = None,
    ) -> None:
        self.fork_lock = allocate_lock()
        self._config = config
        self._sink = sink
        self._processor = processor
        self._counters = counters
        self._faults = faults
        self.records = RecordWriter(
            processor,
            self._append,
            producer_id=producer_id,
            batch_records=BATCH_RECORDS,
            batch_bytes=config.log_max_bytes // LOG_BATCHES,
            contexts=ContextMemory(),
        )
        sessions = config.session_sampler()
        self._hold = SessionHold(processor, sessions, counters.dropped) if sessions else None
        self._feedback: list[WireRecord] = []
        self._in_hand = 0
        """Turns being processed."""
        self._closing: Deadline | None = None
        self._has_stated_drops = False
        self._retry_at = 0.0
        self._retry_seconds = 0.0
        self._manifest_at = time.monotonic() + config.manifest_interval_seconds

    @property
    def waiting(self) -> int:
        """The number of turns not yet written to the sink."""
        return self.records.waiting

    @property
    def unwritten(self) -> int:
        """The number of turns not yet written: in processing, held for their session, or waiting."""
        held = self._hold.turns if self._hold is not None else 0
        return self._in_hand + held + self.waiting

    def add(self, case: CaseData) -> None:
        """Process a case and buffer its record for the next write, or count why it was dropped."""
        self._in_hand = 1
        if self._hold is not None and not is_trial(case):
            with self._counted("holding", self._counters.dropped):
                self._hold.add(case)
            self._in_hand = 0
            return
        with self._counted("finishing", self._counters.dropped):
            too_many = self.records.waiting >= WAITING_RECORDS
            if too_many or self.records.waiting_bytes > self._config.queue_max_bytes // 2:
                raise DropCaseError("log_unavailable")
            self.records.add(case)
        self._in_hand = 0
        if self.records.waiting >= BATCH_RECORDS:
            # Immediately, not after all are emitted: the buffer is bounded, the number emitted is
            # not.
            self.write()

    def add_feedback(self, feedback: Feedback) -> None:
        """Process feedback and buffer it for the next write, or count it as lost."""
        with self._counted("feedback", lambda _: self._counters.feedback_lost()):
            if len(self._feedback) >= WAITING_RECORDS:
                raise DropCaseError("log_unavailable")
            if self._hold is not None and feedback.positive is False:
                self._hold.note_negative(self._processor.case_of(feedback))
            processed = self._processor.process_feedback(feedback)
            record = encode_feedback(processed, producer_id=self.records.producer_id)
            self._feedback.append(record)

    def write(self) -> bool:
        """Write the buffer to the sink; return False when the sink failed and the buffer is kept."""
        if time.monotonic() < self._retry_at:
            return not self.waiting and not self._feedback
        return self._release() and self._write()

    def _release(self, *, everything: bool = False) -> bool:
        """Buffer the turns of decided sessions for the sink; return False when it stops taking them."""
        if self._hold is None:
            return True
        with self._retried("holding"):
            for cases in self._hold.decided(everything=everything):
                self._buffer(cases)
                full = self.records.waiting >= BATCH_RECORDS
                if (full and not self._write()) or self._is_late():
                    return False
            return True
        return False

    def _buffer(self, cases: Sequence[CaseData]) -> None:
        self._in_hand = len(cases)
        for case in cases:
            yield_to_agent()
            with self._counted("finishing", self._counters.dropped):
                self.records.add_processed(case)
            self._in_hand -= 1

    def _write(self) -> bool:
        with self._retried("sink"):
            while appended := self.records.append_batch():
                self._counters.written(appended, partial(self.records.forget, appended))
                if self._is_late():
                    return False
            # After the turns it refers to.
            while batch := self._feedback[:BATCH_RECORDS]:
                self._append(batch)
                del self._feedback[: len(batch)]
                self._counters.feedback_written(len(batch))
            return True
        return False

    def write_manifest(self, *, closing: bool = False) -> None:
        """Write a manifest when one is due and something changed."""
        now = time.monotonic()
        drops = self._counters.drops()
        # State the first drops immediately: a killed process states nothing.
        begins = bool(drops) and not self._has_stated_drops
        if closing or (begins and now >= self._retry_at) or now >= self._manifest_at:
            self._manifest_at = now + self._config.manifest_interval_seconds
            with self._retried("sink"):
                self.records.write_manifest(drops, closing=closing)
                self._has_stated_drops = bool(drops)

    def seconds_to_retry(self) -> float | None:
        """Return how long to wait before the next retry, or None when nothing is buffered."""
        waiting = self.waiting or self._feedback
        return max(0.0, self._retry_at - time.monotonic()) if waiting else None

    def retry_now(self) -> None:
        """Reset the backoff: someone is waiting."""
        self._retry_at = 0.0

    def finish(self, deadline: Deadline) -> bool:
        """Write everything by the deadline; drop the rest."""
        self._closing = deadline
        self.retry_now()
        complete = self._release(everything=True) and self.write()
        while not complete and deadline.seconds_left():
            sleep(min(0.05, deadline.seconds_left()))
            self.retry_now()
            complete = self._release(everything=True) and self.write()
        if self._hold is not None:
            self._counters.dropped("close_timeout", self._hold.discard)
        self._counters.feedback_lost(len(self._feedback))
        self._feedback.clear()
        reason = "log_unavailable" if self._retry_seconds else "close_timeout"
        self._counters.dropped(reason, self.records.discard)
        self.write_manifest(closing=True)
        with self.fork_lock:
            complete = self._sink.flush(deadline.seconds_left()) and complete
            self._sink.close()
        return complete

    def _is_late(self) -> bool:
        """Return whether it is closing and no time is left; called after each step, which is progress."""
        if self._closing is None:
            return False
        if not self._closing.seconds_left():
            return True
        self._closing.moved()
        return False

    def _append(self, batch: Sequence[WireRecord]) -> None:
        with self.fork_lock:
            self._sink.append(batch)
        self._retry_seconds = 0.0

    @contextmanager
    def _counted(self, where: str, drop: Callable[[str], None]) -> Iterator[None]:
        """Count what cannot be written; one bad turn or comment must not stop the others."""
        try:
            yield
        except DropCaseError as dropped:
            if dropped.cause is not None:
                self._faults.report(dropped.reason, dropped.cause)
            drop(dropped.reason)
        except BaseException as error:  # see Worker.run
            self._faults.report(where, error)
            drop("internal_error")

    @contextmanager
    def _retried(self, where: str) -> Iterator[None]:
        """Back off when the sink or the file of held turns fails: a custom sink may raise anything."""
        try:
            yield
        except BaseException as error:  # see Worker.run
            self._faults.report(where, error)
            self._retry_seconds = min(
                LONGEST_RETRY_SECONDS, self._retry_seconds * 2 or FIRST_RETRY_SECONDS
            )
            self._retry_at = time.monotonic() + self._retry_seconds
