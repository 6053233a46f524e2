"""The forwarder: sends spools to a broker on its own thread, in order and without loss.

It knows no broker: a `Producer` sends records and later reports the outcome of each. A window of
records, bounded in number and bytes, is sent, then acknowledgements are awaited in order; only they
advance the spool's cursor. So at most one window reaches the topic twice, and only after an error.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from evaltap.recorder.delivery.lifecycle import lock_during_forks
from evaltap.recorder.delivery.spool.spool import Spool, SpoolReader, orphans
from evaltap.recorder.faults import Faults, RecordRefusedError
from evaltap.recorder.pacing import DEFAULT_PACE, Pacer, set_pace, yield_to_agent
from evaltap.recorder.threads import BackgroundThread, Signal, allocate_lock, wait_until
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.wire.record import CASE_TYPE, WireRecord

ACK_SECONDS = 30.0
POLL_SECONDS = 0.5
ORPHAN_SECONDS = 60.0
"""Interval between scans for spools of ended processes."""
BEHIND_CASES = 1_000
"""Backlog beyond which it no longer yields to the agent's threads: a spool is bounded."""
LONGEST_BACKOFF_SECONDS = 5.0
AWAITED_BACKOFF_SECONDS = 0.2
STOP_SECONDS = 1.0
ABANDON_SECONDS = 0.2

FATAL_ERRORS = (ConfigurationError, ImportError)
"""Errors that no retry fixes: `drained` returns at once, and `fatal_error` gives the reason."""

Result = TypeVar("Result")


class Answer(Protocol):
    """The pending outcome of a record that was sent."""

    def wait(self, timeout_seconds: float) -> bool:
        """Return whether it was acknowledged in time; raises RecordRefusedError if it never will be."""
        ...


class Producer(Protocol):
    """A connection to a topic; used by one thread, discarded after the first error."""

    def send(self, record: WireRecord) -> Answer:
        """Start sending; may raise the same exceptions as `Answer.wait`."""
        ...

    def close(self) -> None:
        """Close it; pending records are not awaited."""


@dataclass(frozen=True, slots=True)
class SendResult:
    """The outcome of a window: how many cases were acknowledged, how many quarantined."""

    records: int = 0
    cases: int = 0
    refused_cases: int = 0
    error: Exception | None = None


class SpoolSender:
    """Sends one window of a spool at a time, through a producer created on demand.

    `is_abandoned` returns True when no one waits for answers any more.
    """

    def __init__(self, connect: Callable[[], Producer], is_abandoned: Callable[[], bool]) -> None:
        self._connect = connect
        self._is_abandoned = is_abandoned
        self._producer: Producer | None = None

    def send(self, spool: SpoolReader) -> SendResult:
        """Send the next window and advance the spool's cursor past what is done, in order."""
        if not (window := spool.next()):
            return SendResult()
        failure: Exception | None = None
        done = refused_cases = 0
        try:
            answers = self._send_all([record for _, record in window])
            deadline = time.monotonic() + ACK_SECONDS
            for (_, record), answer in zip(window, answers, strict=True):
                if not self._is_acknowledged(record, answer, deadline):
                    spool.reject(record)
                    refused_cases += is_case(record)
                done += 1
                if self._producer is None:
                    break  # records after a refusal are sent again
        except Exception as error:
            # Whatever the producer's state, the retry starts from the spool with a new one.
            failure = error
            self.disconnect()
        if done:
            spool.sent(window[done - 1][0])
        cases = sum(is_case(record) for _, record in window[:done]) - refused_cases
        return SendResult(done, cases, refused_cases, failure)

    def disconnect(self) -> None:
        """Discard the producer."""
        producer, self._producer = self._producer, None
        if producer is not None:
            try:
                producer.close()
            except Exception:
                # A producer that cannot even close holds nothing we need: everything is in the
                # spool.
                return

    def _send_all(self, records: Sequence[WireRecord]) -> list[Answer | None]:
        """Start sending all; None marks a record refused at once."""
        producer = self._producer = self._producer or self._connect()
        answers: list[Answer | None] = []
        for record in records:
            try:
                answers.append(producer.send(record))
            except RecordRefusedError:
                answers.append(None)
            yield_to_agent()
        return answers

    def _is_acknowledged(self, record: WireRecord, answer: Answer | None, deadline: float) -> bool:
        """Wait for an acknowledgement; return False when the record itself was refused."""
        if answer is None:
            return False
        try:
            self._await(answer, deadline)
        except RecordRefusedError:
            # A broker refuses a whole batch for a single bad record, and an idempotent producer
            # then refuses everything after it. Sent alone, through a new producer, a refusal is
            # about this record.
            self.disconnect()
            return self._is_acknowledged_alone(record)
        return True

    def _is_acknowledged_alone(self, record: WireRecord) -> bool:
        self._producer = self._connect()
        try:
            self._await(self._producer.send(record), time.monotonic() + ACK_SECONDS)
        except RecordRefusedError:
            return False
        finally:
            self.disconnect()
        return True

    def _await(self, answer: Answer, deadline: float) -> None:
        while not answer.wait(POLL_SECONDS):
            if self._is_abandoned() or time.monotonic() > deadline:
                raise TimeoutError("no answer from the broker")


class Forwarder:
    """Empties this process's spool, and those of ended processes, on one thread."""

    def __init__(self, connect: Callable[[], Producer], spool: Spool) -> None:
        self._spool = spool
        self._stopping = Signal()
        self._woken = Signal()
        self._hurry = Signal()
        self._lock = allocate_lock()
        self._waiting = 0
        self._rejected_cases = 0
        self._refused: Counter[Path] = Counter()
        self._awaited = 0
        self._sender = SpoolSender(connect, self._stopping.is_set)
        self._fatal: list[Exception] = []
        self._faults = Faults("turns wait on the spool until the broker accepts them")
        self._backoff = 0.0
        self._next_scan = 0.0
        self._fork_lock = allocate_lock()
        lock_during_forks(self._fork_lock)
        self._thread = BackgroundThread(self._run)

    @property
    def waiting(self) -> int:
        """How many added cases are not acknowledged, including quarantined ones."""
        with self._lock:
            return max(0, self._waiting) + self._rejected_cases

    @property
    def unsent(self) -> int:
        """How many added cases wait in the spool, without quarantined ones."""
        with self._lock:
            return max(0, self._waiting)

    @property
    def refused(self) -> Mapping[Path, int]:
        """How many cases the broker refused and were quarantined, by file; includes ended processes."""
        with self._lock:
            return dict(self._refused)

    @property
    def fatal_error(self) -> Exception | None:
        """The error that aborted the last `drained` and only other settings or packages fix."""
        with self._lock:
            return self._fatal[-1] if self._fatal else None

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def added(self, cases: int) -> None:
        """Count cases appended to the spool."""
        with self._lock:
            self._waiting += cases
        self._woken.set()

    def drained(self, timeout_seconds: float) -> bool:
        """Wait, at most this long, until everything added is done; retries are faster meanwhile.

        Returns False at once for an error that only other settings fix; see `fatal_error`.
        """
        with self._lock:
            self._awaited += 1
            self._fatal.clear()
            self._hurry.set()
            self._woken.set()
        deadline = time.monotonic() + timeout_seconds
        try:
            wait_until(lambda: self._waiting <= 0 or bool(self._fatal), lambda: deadline)
            return self._waiting <= 0
        finally:
            with self._lock:
                self._awaited -= 1

    def stop(self) -> None:
        """Stop the thread; if it waits for a broker it is abandoned and its spool kept."""
        self._stopping.set()
        self._hurry.set()
        self._woken.set()
        with self._lock:
            idle = self._waiting <= 0
        self._thread.join(STOP_SECONDS if idle else ABANDON_SECONDS)

    def _run(self) -> None:
        set_pace(Pacer(lambda: 0 if self._is_urgent() else DEFAULT_PACE.rest_seconds))
        with SpoolReader(self._spool, self._fork_lock) as own:
            while not self._stopping.is_set():
                self._guarded(self._adopt_orphans, None)
                more = self._guarded(lambda: self._forward(own), False)
                if not more and not self._backoff:  # after an error it has already waited
                    self._woken.wait(POLL_SECONDS)
                    self._woken.clear()
            empty = self._guarded(own.is_empty, False)
        if empty:
            self._spool.remove()
        else:
            self._spool.release()
        self._sender.disconnect()

    def _is_urgent(self) -> bool:
        return self._awaited > 0 or self._waiting > BEHIND_CASES

    def _adopt_orphans(self) -> None:
        """Send what ended processes left, oldest first, before this process's own records."""
        if time.monotonic() < self._next_scan:
            return
        self._next_scan = time.monotonic() + ORPHAN_SECONDS
        for spool in orphans(self._spool.path.parent):
            self._adopt(spool)

    def _adopt(self, spool: Spool) -> None:
        with SpoolReader(spool, self._fork_lock) as left:
            while not self._stopping.is_set() and self._guarded(
                lambda: self._forward(left, counted=False), False
            ):
                pass
            empty = self._guarded(left.is_empty, False)
        if empty:
            spool.remove()
        else:
            spool.release()

    def _forward(self, spool: SpoolReader, *, counted: bool = True) -> bool:
        """Send a window; return whether the next one may follow at once."""
        result = self._sender.send(spool)
        skipped = spool.take_skipped()
        if result.refused_cases:
            with self._lock:
                self._refused[spool.rejected_path] += result.refused_cases
        if counted and (result.records or skipped):
            with self._lock:
                self._waiting -= result.cases + result.refused_cases
                self._rejected_cases += result.refused_cases
                # Unreadable records count as turns, because their kind is unknown.
                unreadable = min(skipped, max(0, self._waiting))
                self._waiting -= unreadable
                self._rejected_cases += unreadable
        if result.error is not None:
            self._failed(result.error)
            return False
        self._backoff = 0.0
        return result.records > 0

    def _guarded(self, step: Callable[[], Result], otherwise: Result) -> Result:
        """Run a step; a disk error stops neither the thread nor the spool."""
        try:
            return step()
        except Exception as error:
            self._failed(error)
            return otherwise

    def _failed(self, error: Exception) -> None:
        """Record a failure and back off exponentially, unless someone is waiting."""
        if isinstance(error, FATAL_ERRORS):
            with self._lock:
                self._fatal[:] = [error]
        self._faults.report("kafka", error)
        self._faults.log(time.monotonic())
        self._backoff = min(LONGEST_BACKOFF_SECONDS, self._backoff * 2 or 0.1)
        awaited = self._awaited > 0
        self._hurry.wait(min(self._backoff, AWAITED_BACKOFF_SECONDS) if awaited else self._backoff)
        if not self._stopping.is_set():
            self._hurry.clear()


def is_case(record: WireRecord) -> bool:
    """Return whether a record holds a turn, and so is counted."""
    return record.header("ce_type") == CASE_TYPE
