"""A worker: takes jobs from a topic as one of a consumer group, scores them, writes the results.

It keeps nothing.  What it has not answered is not committed, so whoever has the partition next does it
again; the sink stores the first answer only.  The thread that polls never works: jobs run on threads, the
partitions are paused while those have enough, and a poll each second keeps the worker in its group
however slow a judge is.
"""

import logging
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, NamedTuple

from evaltap.evaluator.job_progress import MOST_TRIES, JobProgress
from evaltap.evaluator.job_rows import with_short_reasons
from evaltap.evaluator.job_scoring import JobScorer
from evaltap.evaluator.sources.unreadable import Connect, is_unreadable, unreadable_ranges
from evaltap.evaluator.topics import (
    CONNECT_SECONDS,
    TopicsAway,
    TopicWriter,
    patiently,
    polled,
    wire_record,
)
from evaltap.schemas.dead_letter import encode_dead_letter
from evaltap.schemas.envelope import RecordError, WireRecord
from evaltap.schemas.job import Job, Result, decode_job, encode_result

log = logging.getLogger(__name__)

JOBS_AHEAD = 2
"""Jobs under way for each thread: one at work, one waiting for it."""
POLL_SECONDS = 1.0
FINISH_SECONDS = 20.0
"""How long jobs under way may take to finish when the worker is stopped."""
AWAY_SECONDS = 1.0
MOST_UNSENT = 100
"""Answers that wait for their topic, from which on no more jobs are taken."""

Partition = Any
"""The client's TopicPartition."""


@dataclass(frozen=True, slots=True)
class WorkerTopics:
    """Where jobs come from, and where results and unreadable jobs go."""

    jobs: str
    results: str
    dead_letters: str


@dataclass(slots=True)
class WorkerCounts:
    """What a worker has done since it started."""

    jobs: int = 0
    refused: int = 0
    given_up: int = 0
    """Jobs that had ended too many workers."""
    dead_letters: int = 0
    assigned: int = 0
    """Partitions that it was given, each time counted."""
    rebalances: int = 0
    """Times that partitions were taken from it."""


class _Waiting(NamedTuple):
    partition: Partition
    offset: int
    record: WireRecord


class _Answer(NamedTuple):
    partition: Partition
    offset: int
    topic: str
    record: WireRecord
    job: Job | None = None
    """What it answers; None for a dead letter."""


class Worker:
    """Works until `stop`, which may be called from a signal handler.

    `consumer` is a subscribed kafka-python consumer without auto-commit, whose listener tells of
    partitions that come and go; `outside` makes one that belongs to no group.
    """

    def __init__(
        self,
        consumer: Any,
        writer: TopicWriter,
        scorer: JobScorer,
        topics: WorkerTopics,
        outside: Connect,
        *,
        name: str,
        threads: int = 8,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._consumer = consumer
        self._writer = writer
        self._scorer = scorer
        self._topics = topics
        self._outside = outside
        self._name = name
        self._room = threads * JOBS_AHEAD
        self._clock = clock
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="evaltap-work")
        self._progress: dict[Partition, JobProgress] = {}
        self._lock = threading.Lock()
        """Held where `_progress` is changed: the client tells of lost partitions on its own thread."""
        self._waiting: deque[_Waiting] = deque()
        self._under_way: dict[Future[_Answer], _Waiting] = {}
        self._alone = False
        self._finished: queue.SimpleQueue[Future[_Answer]] = queue.SimpleQueue()
        self._unsent: list[_Answer] = []
        self._not_before: dict[str, float] = {}
        """By topic: when it may be written again."""
        self._dirty: set[Partition] = set()
        self._stopped = threading.Event()
        self.counts = WorkerCounts()
        self._told: set[str] = set()

    def stop(self) -> None:
        """Ask the worker to finish what is under way and to leave."""
        self._stopped.set()

    def run(self) -> WorkerCounts:
        """Work until stopped; what is under way then may still finish within its time."""
        try:
            while not self._stopped.is_set():
                self._poll()
                self._start()
                self._collect(wait=bool(self._under_way))
                self._send()
                self._commit()
            self._finish()
        finally:
            self._pool.shutdown(wait=False, cancel_futures=True)
        return self.counts

    # -- partitions, on the client's thread ------------------------------------------------------

    def assigned(self, partitions: Collection[Partition]) -> None:
        """Note partitions that have come; each is looked at when its first job comes."""
        if partitions and not self.counts.assigned:
            log.info("joined the group")
        self.counts.assigned += len(partitions)

    def revoked(self, partitions: Collection[Partition]) -> None:
        """Leave partitions in good order: what is done is committed, what is not is somebody else's."""
        left = {}
        with self._lock:
            self.counts.rebalances += 1
            for partition in partitions:
                if (progress := self._progress.pop(partition, None)) is not None:
                    progress.abandon()
                    left[partition] = progress.to_commit()
        if left:
            self._consumer.commit_async(_offsets(left))

    def lost(self, partitions: Collection[Partition]) -> None:
        """Forget partitions that somebody else has already: nothing may be committed any more."""
        with self._lock:
            self.counts.rebalances += 1
            for partition in partitions:
                self._progress.pop(partition, None)

    # -- the loop --------------------------------------------------------------------------------

    def _poll(self) -> None:
        """Read jobs when there is room for them, and show the group that this worker lives."""
        room = self._room - len(self._under_way) - len(self._waiting)
        if len(self._unsent) >= MOST_UNSENT:
            room = 0
        assigned = self._consumer.assignment()
        if room > 0:
            self._consumer.resume(*self._consumer.paused())
        else:
            self._consumer.pause(*assigned)
        wait = 0 if self._under_way or self._waiting else int(POLL_SECONDS * 1000)
        try:
            found = polled(self._consumer, wait, max(1, room))
        except Exception as error:  # whatever decoding damaged bytes comes to
            if not is_unreadable(error):
                raise
            self._pass_unreadable(error)
            return
        for partition, messages in found.items():
            progress = self._progress_of(partition, messages[0].offset)
            for message in messages:
                progress.read(message.offset)
                self._waiting.append(_Waiting(partition, message.offset, wire_record(message)))

    def _pass_unreadable(self, error: Exception) -> None:
        """Go past what the client cannot unpack; what was asked there the sink asks again."""
        positions = {one: self._consumer.position(one) for one in self._consumer.assignment()}
        for place, (first, behind) in unreadable_ranges(self._outside, positions).items():
            self._consumer.seek(place, behind)
            log.warning(
                "%s[%s]: jobs %s to %s cannot be unpacked (%s: %s); the sink asks again for them",
                *place, first, behind - 1, type(error).__name__, error,
            )  # fmt: skip

    def _progress_of(self, partition: Partition, offset: int) -> JobProgress:
        with self._lock:
            found = self._progress.get(partition)
        if found is None:
            committed = patiently(
                lambda: self._consumer.committed(partition, metadata=True), CONNECT_SECONDS
            )
            found = JobProgress.restored(offset, committed.metadata if committed else "")
            with self._lock:
                self._progress[partition] = found
        return found

    def _start(self) -> None:
        """Start waiting jobs; each is marked as begun in a commit before it is."""
        chosen: list[_Waiting] = []
        while self._waiting and len(self._under_way) + len(chosen) < self._room:
            if self._alone:
                break
            one = self._waiting[0]
            progress = self._progress.get(one.partition)
            if progress is None:
                self._waiting.popleft()  # the partition is another's now
                continue
            if progress.is_hopeless(one.offset):
                self._waiting.popleft()
                self._give_up(one)
                continue
            if progress.is_suspect(one.offset):
                if self._under_way or chosen:
                    break
                self._alone = True
            chosen.append(self._waiting.popleft())
            progress.begin(one.offset)
            self._dirty.add(one.partition)
        if chosen and not self._commit():
            # Nobody would know that they were begun; perhaps the partitions are another's already.
            self._alone = False
            self._waiting.extendleft(reversed(chosen))
            return
        for one in chosen:
            future = self._pool.submit(self._work, one)
            self._under_way[future] = one
            future.add_done_callback(self._finished.put)

    def _work(self, one: _Waiting) -> _Answer:
        """Return the answer to one record, on a thread of its own; whatever it holds."""
        try:
            job = decode_job(one.record)
        except RecordError as error:
            letter = encode_dead_letter(
                one.record, reason=error.reason, detail=str(error), topic=self._topics.jobs,
                partition=one.partition.partition, offset=one.offset, producer_id=self._name,
                time=datetime.now(UTC),
            )  # fmt: skip
            self.counts.dead_letters += 1
            return _Answer(one.partition, one.offset, self._topics.dead_letters, letter)
        try:
            result = self._scorer.answer(job)
        except (
            Exception
        ) as error:  # ours or an evaluator's: this job's answer, not the worker's end
            log.exception("job %s", job.job_id)
            result = self._scorer.refuse(job, f"{type(error).__name__}: {error}")
        return self._answer(one, job, result)

    def _answer(self, one: _Waiting, job: Job, result: Result) -> _Answer:
        record = self._encoded(job, result)
        if result.refusal:
            self.counts.refused += 1
            self._tell(result.refusal)
        self.counts.jobs += 1
        return _Answer(one.partition, one.offset, self._topics.results, record, job)

    def _encoded(self, job: Job, result: Result) -> WireRecord:
        """Return a result as a record: with its reasons cut, or without scores, when it fits none."""
        try:
            return encode_result(result, time=datetime.now(UTC))
        except RecordError as error:
            problem = error
        with suppress(RecordError):
            return encode_result(with_short_reasons(result), time=datetime.now(UTC))
        result = self._scorer.give_up(job, f"the result cannot be written: {problem}")
        return encode_result(result, time=datetime.now(UTC))

    def _give_up(self, one: _Waiting) -> None:
        """Answer a job that has ended too many workers without trying it again."""
        reason = f"crash loop: the job was begun {MOST_TRIES} times and each time its worker ended"
        try:
            job = decode_job(one.record)
        except RecordError:
            self._unsent.append(self._work(one))
            return
        self._unsent.append(self._answer(one, job, self._scorer.give_up(job, reason)))
        self.counts.given_up += 1
        self._tell(f"{job.of.eval_id}: {reason}")

    def _collect(self, *, wait: bool) -> None:
        """Take what has finished; with `wait`, wait a moment for the first."""
        full = len(self._under_way) >= self._room or self._alone
        timeout = (POLL_SECONDS if full else POLL_SECONDS / 20) if wait else 0.0
        try:
            while True:
                future = (
                    self._finished.get(timeout=timeout) if timeout else self._finished.get(False)
                )
                timeout = 0.0
                if self._under_way.pop(future, None) is None:
                    continue  # cancelled before it started
                self._alone = False
                self._unsent.append(future.result())
        except queue.Empty:
            return

    def _send(self) -> None:
        """Write answers; only what the broker has taken counts as done.

        A topic that cannot be written is tried again after a while; the others do not wait for it.
        """
        by_topic: dict[str, list[_Answer]] = {}
        for one in self._unsent:
            if self._clock() >= self._not_before.get(one.topic, 0.0):
                by_topic.setdefault(one.topic, []).append(one)
        for topic, answers in by_topic.items():
            try:
                refused = self._writer.write_or_cut(topic, [one.record for one in answers])
            except TopicsAway as problem:
                log.warning("%s; trying again", problem)
                self._not_before[topic] = self._clock() + AWAY_SECONDS
                continue
            for number, one in enumerate(answers):
                self._unsent.remove(one)
                if number in refused and one.job is not None:
                    self._unsent.append(self._without_scores(one, one.job))
                    continue
                if number in refused:
                    self._tell(f"{topic} takes no answer to the record at {one.offset}: too large")
                if (progress := self._progress.get(one.partition)) is not None:
                    progress.done(one.offset)
                    self._dirty.add(one.partition)

    def _without_scores(self, one: _Answer, job: Job) -> _Answer:
        """Return another answer to a job whose result is larger than the topic takes."""
        reason = f"the result is {one.record.size} bytes, more than {one.topic} takes"
        result = self._scorer.give_up(job, reason)
        return one._replace(record=encode_result(result, time=datetime.now(UTC)), job=None)

    def _commit(self) -> bool:
        """Commit what has changed; False when the group did not take it."""
        from kafka.errors import KafkaError

        with self._lock:
            upto = {
                partition: self._progress[partition].to_commit()
                for partition in self._dirty
                if partition in self._progress
            }
        if not upto:
            self._dirty.clear()
            return True
        try:
            self._consumer.commit(_offsets(upto), timeout_ms=10_000)
        except KafkaError as error:
            # A rebalance is under way, or the broker is away: the next commit says it all again.
            log.info("not committed: %s", error)
            return False
        self._dirty.clear()
        return True

    def _finish(self) -> None:
        """Let what is under way finish within its time; the rest is left to others."""
        until = self._clock() + FINISH_SECONDS
        for future in list(self._under_way):
            if future.cancel():
                del self._under_way[future]
        while self._under_way and self._clock() < until:
            self._collect(wait=True)
            self._send()
            self._commit()
        for progress in self._progress.values():
            progress.abandon()
        self._dirty.update(self._progress)
        self._commit()

    def _tell(self, problem: str) -> None:
        if problem not in self._told and len(self._told) < 1_000:
            self._told.add(problem)
            log.warning("%s", problem)


def _offsets(upto: Mapping[Partition, tuple[int, str]]) -> dict[Partition, Any]:
    from kafka.structs import OffsetAndMetadata

    return {
        partition: OffsetAndMetadata(offset, metadata, -1)
        for partition, (offset, metadata) in upto.items()
    }
