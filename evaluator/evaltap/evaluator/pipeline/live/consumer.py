"""The consumer: reads a log, lands its records, scores what has no score, again and again.

Landing and scoring are separate steps over the same store, so a crash between them loses nothing:
what is landed is pending until it has a score.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.ingest.landing.lander import LandedCounts, Lander
from evaltap.evaluator.ingest.landing.recent_cases import RecentCases, RecentLimits
from evaltap.evaluator.ingest.landing.seq_ranges import compact
from evaltap.evaluator.ingest.sources.base import CaseSource, Partition, SourceBatch
from evaltap.evaluator.ingest.sources.positions import began_now, log_positions, partly_read
from evaltap.evaluator.store.database import Store

if TYPE_CHECKING:
    from evaltap.evaluator.pipeline.batch.scorer import PendingScorer
from collections import deque
from typing import Final

from evaltap.evaluator.store.database import LANDING_MEMORY
from evaltap.evaluator.store.opening import ROWS_PER_GROUP
from evaltap.evaluator.store.turn_sizes import size_of_latest_turns

TASKS_EVERY_SECONDS: Final = 1.0
"""How often tasks work while cases are scored."""


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Batch sizes and intervals of a consumer."""

    records_per_batch: int = 1_000
    """Records of a transaction; with twice as many, a turn takes 3 % less processor time, and 40 MB more."""
    poll_seconds: float = 0.2
    land_every_seconds: float = 0.2
    """Interval of landing while records trickle in: a transaction costs as much as seventy turns."""
    score_every_seconds: float = 1.0
    """Interval of scoring while records flood in."""
    score_soon_seconds: float = 0.2
    """Interval of scoring while records trickle in."""
    most_changed: int = 20_000
    """Most cases that wait for their scores in memory."""
    reopen_after: int = 100_000
    """Records landed before the file is reopened, which takes some 50 ms and frees memory."""


class Schedule:
    """Decides when cases are scored: soon while records trickle in, in large batches while they flood in.

    With `until_idle`, cases are scored only at the end of the log, or when too many wait.
    """

    def __init__(
        self, limits: ConsumerLimits, clock: Callable[[], float], *, until_idle: bool
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._until_idle = until_idle
        self._ends = until_idle
        """Whether the log was opened to be read to its end, and says where that is."""
        self._more = False
        self._flood = limits.records_per_batch // 4
        self._scored_at = clock()
        self._land_again_at = clock()
        self._unscored = True
        """Whether records may have landed since cases were last scored."""

    def finish(self) -> None:
        """Stop as soon as everything is done."""
        self._until_idle = True

    def poll_seconds(self, *, busy: bool) -> float:
        """Return how long to wait for records: 0 while there is other work, or nothing to wait for."""
        if busy or (self._ends and not self._more):
            return 0.0
        return self._limits.poll_seconds / (2 if self._unscored else 1)

    def rest_seconds(self, *, busy: bool, waits: bool = False) -> float:
        """Return how long to let records accumulate before the next poll: 0 while there is other work.

        `waits`: only a task is left, and it waits for an endpoint that is away.
        """
        if busy or self._until_idle:
            return self._limits.poll_seconds if waits else 0.0
        return max(0.0, self._land_again_at - self._clock())

    def landed(self, records: int, *, more: bool = False) -> None:
        """Note that records have landed; `more` means that the log has others to wait for."""
        self._unscored = self._unscored or records > 0
        self._more = more
        if 0 < records < self._flood:
            self._land_again_at = self._clock() + self._limits.land_every_seconds

    def is_due(self, records: int, *, at_end: bool, full: bool) -> bool:
        """Return whether to score now, after a batch of this many records.

        `at_end`: the log had no more records.  `full`: as many cases wait as memory allows.
        """
        if not self._unscored:
            return False
        floods = records >= self._flood
        pause = self._limits.score_every_seconds if floods else self._limits.score_soon_seconds
        late = not self._until_idle and self._clock() - self._scored_at >= pause
        return at_end or full or late

    def scored(self) -> None:
        """Note that all landed cases have been considered for scoring."""
        self._unscored, self._scored_at = False, self._clock()

    def is_over(self, *, at_end: bool, due: bool) -> bool:
        """Return whether everything has landed and is scored that is to be."""
        return self._until_idle and at_end and not due


class ConsumerTask(Protocol):
    """Work that the consumer's thread does with the store besides landing and scoring.

    A subclass that does not say otherwise prepares and closes nothing, and is always idle.
    """

    def begin(self) -> None:
        """Prepare; called once, before the first record lands."""
        return

    def step(self, changed: ChangedCases | None) -> bool:
        """Do what is due, briefly; return whether there is more to do immediately.

        `changed` holds the cases that changed since scoring last ran; None if scoring did not run.
        """
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do until another record lands."""
        return True

    def close(self) -> None:
        """Close connections; called once, by its creator."""
        return


@dataclass(slots=True)
class Consumed:
    """What a consumer has done since it started."""

    landed: LandedCounts = field(default_factory=LandedCounts)
    cases_scored: int = 0
    gaps: list[str] = field(default_factory=list)
    away: bool = False
    """Whether nobody answers who could say whether the log has more records."""


class Consumer:
    """Lands the records of a source in a store and scores them; `stop` may be called from any thread.

    `log` is stored as the `source` of the run.  `tasks` run on the same thread, and `beat` is called at
    every step.  A partition read for the first time is read from its oldest record, or from its end with
    `from_now`.
    """

    def __init__(
        self,
        source: CaseSource,
        store: Store,
        *,
        scorer: "PendingScorer | None" = None,
        tasks: Sequence[ConsumerTask] = (),
        log: str = "",
        from_now: bool = False,
        limits: ConsumerLimits | None = None,
        recent_limits: RecentLimits | None = None,
        clock: Callable[[], float] = time.monotonic,
        beat: Callable[[Consumed], None] = lambda _: None,
    ) -> None:
        self._source = source
        self._store = store
        self._limits = limits or ConsumerLimits()
        self._recent = (
            RecentCases(recent_limits or RecentLimits())
            if scorer is not None and scorer.takes_recent
            else None
        )
        self._lander = Lander(store, recent=self._recent, ahead=True)
        self._scorer = scorer
        self._tasks = tasks
        self._log = log
        self._from_now = from_now
        self._clock = clock
        self._beat = beat
        self._backlog = (  # cases left by a killed run, or not scored by these metrics
            scorer.backlog(log, stopped=self._is_stopped) if scorer is not None else None
        )
        self._memory = LandingMemory(store)
        self._landed_since_opening = 0
        self._stepped_at = clock()
        self._stopped = False
        self._finishing = threading.Event()
        self.ends = False
        """Whether it only waits for its tasks before it ends."""
        self.consumed = Consumed()

    def stop(self) -> None:
        """Stop the loop after its current step.

        Signal handlers call this too, so it takes no lock: the loop that they interrupt may hold it.
        """
        self._stopped = True

    def finish(self) -> None:
        """Stop the loop once the log is read to its end and everything is scored."""
        self._finishing.set()

    def _is_stopped(self) -> bool:
        """Return whether `stop` was called.  Every step calls this, so it also sends the heartbeat."""
        self._beat(self.consumed)
        return self._stopped

    def run(self, *, until_idle: bool, report: Callable[[Consumed], None]) -> Consumed:
        """Consume until `stop`; with `until_idle`, until the log is at its end and everything is scored."""
        compact(self._store)
        for task in self._tasks:
            task.begin()
        offsets = self._lander.offsets()
        self._source.seek(self._pass_gaps(offsets, report))
        with self._store.limited_memory(self._memory.megabytes):
            self._loop(until_idle=until_idle, report=report)
            self._store.join()
        return self.consumed

    def _pass_gaps(
        self, offsets: Mapping[Partition, int], report: Callable[[Consumed], None]
    ) -> Mapping[Partition, int]:
        """Report the gaps that deleted records left in the log; return the offsets to continue from.

        The first offset of a new partition is stored too, so that later deletions there count as gaps.
        """
        positions = log_positions(self._source.bounds(), offsets, partly_read(self._store))
        self.consumed.gaps += [position.gap for position in positions if position.gap]
        passed = {
            one.partition: one.bounds.end
            if self._from_now and one.next_offset is None
            else one.bounds.start
            for one in positions
            if one.gap or one.next_offset is None
        }
        if self.consumed.gaps:
            report(self.consumed)
        if passed:
            # Stored after reporting, so that the next start does not report the gaps again.
            self._lander.land(SourceBatch(next_offsets=passed))
            new = [one.partition for one in positions if one.next_offset is None]
            if self._from_now:
                self._store.append("meta", [(began_now(one), "1") for one in new])
        return {**offsets, **passed}

    def _works_while_scoring(self) -> bool:
        """Let the tasks work, as a judge may take minutes; return whether `stop` was called."""
        if (now := self._clock()) - self._stepped_at >= TASKS_EVERY_SECONDS:
            self._stepped_at = now
            for task in self._tasks:
                task.step({})
        return self._is_stopped()

    def _loop(self, *, until_idle: bool, report: Callable[[Consumed], None]) -> None:
        limits = self._limits
        schedule = Schedule(limits, self._clock, until_idle=until_idle)
        stopped = self._is_stopped if until_idle else self._works_while_scoring
        busy, waits = self._score_backlog(report), False
        while not self._is_stopped():
            if self._finishing.is_set():
                schedule.finish()
            time.sleep(schedule.rest_seconds(busy=busy, waits=waits))
            batch = self._source.poll(limits.records_per_batch, schedule.poll_seconds(busy=busy))
            self.consumed.away = batch.away
            self._land(batch, report)
            schedule.landed(len(batch.records), more=batch.more)
            at_end = not batch.records and not batch.more
            if at_end:
                self._store.join()
            due = schedule.is_due(len(batch.records), at_end=at_end, full=self._is_full())
            changed = self._lander.take_changed() if due else None
            if changed is not None:
                self._score(changed, stopped)
                schedule.scored()
                report(self.consumed)
            busy = any([self._score_backlog(report), *(task.step(changed) for task in self._tasks)])
            idle = self._backlog is None and all(task.idle for task in self._tasks)
            self.ends = schedule.is_over(at_end=at_end, due=due)
            if self.ends and idle:
                break
            waits = at_end and not (busy or due or idle)

    def _land(self, batch: SourceBatch, report: Callable[[Consumed], None]) -> None:
        self.consumed.gaps += batch.gaps
        if self._memory.rises(batch):
            self._store.limit_memory(self._memory.megabytes)
        if batch.records or batch.next_offsets or batch.traces:
            self.consumed.landed.add(self._lander.land(batch))
            self._reopen_at_times(len(batch.records))
            report(self.consumed)

    def _is_full(self) -> bool:
        """Return whether as many cases wait for scores as memory allows."""
        recent = self._recent is not None and self._recent.full
        return recent or len(self._lander.changed) >= self._limits.most_changed

    def _reopen_at_times(self, landed: int) -> None:
        self._landed_since_opening += landed
        after = self._limits.reopen_after
        # Current readers get time to finish, but not indefinitely: nobody can read during the reopening.
        if self._landed_since_opening >= (3 * after if self._store.gate.is_read else after):
            self._landed_since_opening = 0
            compact(self._store)
            self._store.reopen()

    def _score_backlog(self, report: Callable[[Consumed], None]) -> bool:
        """Score some of the cases that were pending at the start; return whether there are more."""
        if self._backlog is None:
            return False
        cases = next(self._backlog, None)
        if cases is None:
            self._backlog = None
            return False
        self.consumed.cases_scored += cases
        report(self.consumed)
        return True

    def _score(self, changed: ChangedCases, stopped: Callable[[], bool]) -> None:
        recent = {} if self._recent is None else self._recent.take()
        if self._scorer is not None:
            _, cases = self._scorer.score(
                "live", self._log, changed=changed, recent=recent, stopped=stopped
            )
            self.consumed.cases_scored += cases


MOST_MEGABYTES: Final = 1_024
"""Enough for all sizes: values above 256 KB are not kept."""


class LandingMemory:
    """The limit for landing in a store, in megabytes; it rises with the size of records, and never falls."""

    def __init__(self, store: Store) -> None:
        self.megabytes = LANDING_MEMORY
        self._batches: deque[tuple[int, int]] = deque()
        """Records and bytes of the latest batches that together hold ROWS_PER_GROUP records."""
        self._records = self._bytes = 0
        self._add(*size_of_latest_turns(store))

    def rises(self, batch: SourceBatch) -> bool:
        """Return whether a batch raises the limit."""
        before = self.megabytes
        self._add(len(batch.records), sum(one.record.size for one in batch.records))
        return self.megabytes > before

    def _add(self, records: int, size: int) -> None:
        self._batches.append((records, size))
        self._records, self._bytes = self._records + records, self._bytes + size
        while self._records - self._batches[0][0] >= ROWS_PER_GROUP:
            first_records, first_size = self._batches.popleft()
            self._records, self._bytes = self._records - first_records, self._bytes - first_size
        while self.megabytes < MOST_MEGABYTES and self._bytes > self.megabytes << 20:
            self.megabytes = min(2 * self.megabytes, MOST_MEGABYTES)
