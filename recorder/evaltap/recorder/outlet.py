"""The way out: number the records, hand them to the sink in batches, keep them while it fails.

A number is given only to a record that waits for the sink, so the numbers on the log are dense: a
gap is a loss.  When the sink fails, what waits is bounded; beyond it the newest turns are dropped
and counted, without a number.
"""

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.errors import Faults
from evaltap.recorder.finishing import Dropped, Finisher
from evaltap.recorder.ledger import Ledger
from evaltap.recorder.pacing import breathe
from evaltap.recorder.sinks.base import Sink
from evaltap.schemas.feedback import Feedback
from evaltap.schemas.record import Manifest, WireRecord, encode_feedback, encode_manifest

BATCH_RECORDS = 500
FIRST_RETRY_SECONDS = 0.1
LONGEST_RETRY_SECONDS = 5.0
MAX_WAITING_RECORDS = 5_000


class Outlet:
    """Owns the sequence numbers of one producer; used by the background thread.

    `calm` is held while the sink works, so that a fork can wait for a moment without one.
    """

    def __init__(
        self,
        config: RecorderConfig,
        sink: Sink,
        finisher: Finisher,
        ledger: Ledger,
        faults: Faults,
        producer_id: str,
    ) -> None:
        self.producer_id = producer_id
        self.calm = threading.Lock()
        self._config = config
        self._sink = sink
        self._finisher = finisher
        self._ledger = ledger
        self._faults = faults
        self._seq = 0
        self._waiting: list[WireRecord] = []
        self._waiting_bytes = 0
        self._feedback: list[WireRecord] = []
        self._retry_at = 0.0
        self._retry_seconds = 0.0
        self._manifest_at = time.monotonic() + config.manifest_interval_seconds
        self._stated: tuple[int, Mapping[str, int]] = (0, {})

    @property
    def waiting(self) -> int:
        """The number of records that the sink has not taken yet."""
        return len(self._waiting)

    def add(self, case: dict[str, Any]) -> None:
        """Finish a case and let its record wait for the next write, or count why not."""
        try:
            if len(self._waiting) >= MAX_WAITING_RECORDS or (
                self._waiting_bytes > self._config.queue_max_bytes // 2
            ):
                raise Dropped("log_unavailable")
            finished = self._finisher.finish(case)
            breathe()
            record = self._finisher.encode(
                finished,
                producer_id=self.producer_id,
                seq=self._seq + 1,
                time=datetime.now(UTC),
            )
        except Dropped as dropped:
            if dropped.cause is not None:
                self._faults.report("finishing", dropped.cause)
            self._ledger.dropped(dropped.reason)
            return
        except Exception as error:
            # One odd case must not stop the others.
            self._faults.report("finishing", error)
            self._ledger.dropped("internal_error")
            return
        self._seq += 1
        self._waiting.append(record)
        self._waiting_bytes += record.size

    def add_feedback(self, feedback: Feedback) -> None:
        """Finish feedback and let it wait for the next write, or count it as lost."""
        try:
            if len(self._feedback) >= MAX_WAITING_RECORDS:
                raise Dropped("log_unavailable")
            finished = self._finisher.finish_feedback(feedback)
            record = encode_feedback(finished, producer_id=self.producer_id)
        except Dropped as dropped:
            if dropped.cause is not None:
                self._faults.report("feedback", dropped.cause)
            self._ledger.feedback_lost()
        except Exception as error:
            # One odd word must not stop the turns.
            self._faults.report("feedback", error)
            self._ledger.feedback_lost()
        else:
            self._feedback.append(record)

    def write(self) -> bool:
        """Hand what waits to the sink; False when it was not taken and is kept."""
        if time.monotonic() < self._retry_at:
            return not self._waiting and not self._feedback
        while self._waiting:
            batch = self._waiting[:BATCH_RECORDS]
            if not self._append(batch):
                return False
            del self._waiting[: len(batch)]
            self._waiting_bytes -= sum(record.size for record in batch)
            self._ledger.taken(len(batch))
        # After the turns, so that what is said of a turn comes behind it.
        while self._feedback:
            batch = self._feedback[:BATCH_RECORDS]
            if not self._append(batch):
                return False
            del self._feedback[: len(batch)]
            self._ledger.feedback_taken(len(batch))
        return True

    def state(self, *, closing: bool = False) -> None:
        """Write a manifest when one is due and there is something new to say."""
        now = time.monotonic()
        if not closing and now < self._manifest_at:
            return
        self._manifest_at = now + self._config.manifest_interval_seconds
        saying = (self._seq - len(self._waiting), self._ledger.drops())
        if saying == self._stated and not (closing and saying != (0, {})):
            return
        highest, drops = saying
        manifest = Manifest(self.producer_id, highest, datetime.now(UTC), drops, closing)
        if self._append([encode_manifest(manifest)]):
            self._stated = saying

    def seconds_to_retry(self) -> float | None:
        """Return how long to wait before the sink is tried again, None when nothing waits."""
        waiting = self._waiting or self._feedback
        return max(0.0, self._retry_at - time.monotonic()) if waiting else None

    def retry_now(self) -> None:
        """Forget that the sink failed: somebody waits for it."""
        self._retry_at = 0.0

    def finish(self, deadline: float) -> bool:
        """Write everything by the deadline (monotonic seconds); what is left is dropped."""
        self.retry_now()
        complete = self.write()
        while not complete and time.monotonic() < deadline:
            time.sleep(min(0.05, max(0.0, deadline - time.monotonic())))
            self.retry_now()
            complete = self.write()
        self._ledger.feedback_lost(len(self._feedback))
        self._feedback.clear()
        if self._waiting:
            self._ledger.dropped("log_unavailable", len(self._waiting))
            self._waiting.clear()
        else:
            self.state(closing=True)
        with self.calm:
            complete = self._sink.flush(max(0.0, deadline - time.monotonic())) and complete
            self._sink.close()
        return complete

    def _append(self, batch: list[WireRecord]) -> bool:
        try:
            with self.calm:
                self._sink.append(batch)
        except Exception as error:
            # A sink may be anybody's; whatever it raises, the batch is kept and tried again.
            self._faults.report("sink", error)
            self._retry_seconds = min(
                LONGEST_RETRY_SECONDS, self._retry_seconds * 2 or FIRST_RETRY_SECONDS
            )
            self._retry_at = time.monotonic() + self._retry_seconds
            return False
        self._retry_seconds = 0.0
        return True
