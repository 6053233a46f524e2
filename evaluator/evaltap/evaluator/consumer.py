"""The consumer: reads a log, lands its records, scores what has no score, again and again.

Landing and scoring are separate steps over the same store, so a crash between them loses nothing:
what is landed is pending until it has a score.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from evaltap.evaluator.compaction import compact
from evaltap.evaluator.fresh_cases import FreshCases
from evaltap.evaluator.landing import LandedCounts, Lander
from evaltap.evaluator.log_position import log_positions, partly_read
from evaltap.evaluator.pending import Touched
from evaltap.evaluator.sources.base import CaseSource, Partition, SourceBatch
from evaltap.evaluator.store import Store

if TYPE_CHECKING:
    from evaltap.evaluator.jobs import PendingScorer

RECORDS_PER_BATCH = 1_000
POLL_SECONDS = 0.2
SCORE_EVERY_SECONDS = 1.0
"""How often to score while records come in large numbers."""
SCORE_SOON_SECONDS = 0.2
"""How often while they come one by one."""
LANDING_MEMORY = "64MB"
"""What DuckDB may keep of the file while records land: it is read little of, and grows for ever."""
LARGE_RECORD = 48 << 10
LARGE_MEMORY = "256MB"
"""What it may keep once a record of so many bytes has come: a checkpoint holds a number of rows."""
MOST_TOUCHED = 20_000
"""Cases that wait for their scores, at most: what is remembered of them is bounded."""

REOPEN_AFTER = 100_000
"""Records landed before the file is opened anew, which takes some 50 ms and gives memory back."""


class Duty(Protocol):
    """Something else that the consumer's thread does with the store, beside landing and scoring."""

    def begin(self) -> None:
        """Make ready; called once, before the first record is landed."""

    def step(self, touched: Touched | None) -> bool:
        """Do what is due, for a moment; return whether more could be done at once.

        `touched` are cases that wait for scores since the last step; None: no look is due now.
        """
        ...

    @property
    def idle(self) -> bool:
        """Whether nothing is left to do until something new lands."""
        ...

    def close(self) -> None:
        """Let go of connections; called once, by whoever made it."""


@dataclass(slots=True)
class Consumed:
    """What a consumer has done since it started."""

    landed: LandedCounts = field(default_factory=LandedCounts)
    cases_scored: int = 0
    gaps: list[str] = field(default_factory=list)


class Consumer:
    """Lands a source into a store and scores it; `stop` may be called from anywhere.

    `log` is what the run's `source` says; `duties` are done on the same thread.
    """

    def __init__(
        self,
        source: CaseSource,
        store: Store,
        *,
        scorer: "PendingScorer | None" = None,
        duties: Sequence[Duty] = (),
        log: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._store = store
        self._fresh = FreshCases() if scorer is not None and scorer.takes_fresh else None
        self._lander = Lander(store, fresh=self._fresh, ahead=True)
        self._scorer = scorer
        self._duties = duties
        self._log = log
        self._clock = clock
        self._large = False
        self._landed_since_opening = 0
        self._stopped = threading.Event()
        self.consumed = Consumed()

    def stop(self) -> None:
        """Ask the loop to end after the step it is in."""
        self._stopped.set()

    def run(self, *, until_idle: bool, report: Callable[[Consumed], None]) -> Consumed:
        """Consume until `stop`, or until the log has nothing new and everything is scored."""
        compact(self._store)
        offsets = self._lander.offsets()
        self._source.seek(self._pass_gaps(offsets, report))
        with self._store.writing_much(LANDING_MEMORY):
            self._score(None)  # of a killed run, or with other metrics
            for duty in self._duties:
                duty.begin()
            self._loop(until_idle=until_idle, report=report)
            self._store.settle()
        return self.consumed

    def _pass_gaps(
        self, offsets: Mapping[Partition, int], report: Callable[[Consumed], None]
    ) -> Mapping[Partition, int]:
        """Tell what is gone from the log; return where to go on, with the gaps behind it.

        Where a partition that is new begins is stored too: what is deleted there from now on is a gap.
        """
        positions = log_positions(self._source.bounds(), offsets, partly_read(self._store))
        self.consumed.gaps += [position.gap for position in positions if position.gap]
        passed = {
            one.partition: one.bounds.start
            for one in positions
            if one.gap or one.next_offset is None
        }
        if self.consumed.gaps:
            report(self.consumed)
        if passed:
            # Stored once it is told, so that the next start does not tell it again.
            self._lander.land(SourceBatch(next_offsets=passed))
        return {**offsets, **passed}

    def _loop(self, *, until_idle: bool, report: Callable[[Consumed], None]) -> None:
        unscored, busy, last_scored = True, False, self._clock()
        while not self._stopped.is_set():
            wait = 0 if busy else POLL_SECONDS / 2 if unscored else POLL_SECONDS
            batch = self._source.poll(RECORDS_PER_BATCH, wait)
            self.consumed.gaps += batch.gaps
            self._make_room(batch)
            if batch.records or batch.next_offsets or batch.traces:
                self.consumed.landed.add(self._lander.land(batch))
                unscored = unscored or bool(batch.records)
                self._reopen_at_times(len(batch.records))
                report(self.consumed)
            nothing = not batch.records and not batch.more
            if nothing:
                self._store.settle()
            flood = len(batch.records) >= RECORDS_PER_BATCH // 4
            pause = SCORE_EVERY_SECONDS if flood else SCORE_SOON_SECONDS
            late = not until_idle and self._clock() - last_scored >= pause
            many = len(self._lander.touched) >= MOST_TOUCHED or (self._fresh and self._fresh.full)
            due = unscored and (nothing or late or many)
            touched = self._lander.take_touched() if due else None
            if touched is not None:
                self._score(touched)
                unscored, last_scored = False, self._clock()
                report(self.consumed)
            busy = any([duty.step(touched) for duty in self._duties])
            if until_idle and nothing and not due and all(duty.idle for duty in self._duties):
                break

    def _make_room(self, batch: SourceBatch) -> None:
        if not self._large and any(
            len(one.record.value or b"") >= LARGE_RECORD for one in batch.records
        ):
            self._large = True
            self._store.allow(LARGE_MEMORY)

    def _reopen_at_times(self, landed: int) -> None:
        self._landed_since_opening += landed
        if self._landed_since_opening >= REOPEN_AFTER:
            self._landed_since_opening = 0
            compact(self._store)
            self._store.reopen()

    def _score(self, touched: Touched | None) -> None:
        fresh = {} if self._fresh is None else self._fresh.take()
        if self._scorer is not None:
            _, cases = self._scorer.score(
                "live", self._log, touched=touched, fresh=fresh, stopped=self._stopped.is_set
            )
            self.consumed.cases_scored += cases
