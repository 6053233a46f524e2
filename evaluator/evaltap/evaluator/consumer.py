"""The consumer: reads a log, lands its records, scores what has no score, again and again.

Landing and scoring are separate steps over the same store, so a crash between them loses nothing:
what is landed is pending until it has a score.
"""

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from evaltap.evaluator.landing import LandedCounts, Lander
from evaltap.evaluator.log_position import log_positions
from evaltap.evaluator.pending import Touched
from evaltap.evaluator.sources.base import CaseSource, Partition
from evaltap.evaluator.store import Store

if TYPE_CHECKING:
    from evaltap.evaluator.jobs import PendingScorer

RECORDS_PER_BATCH = 1_000
POLL_SECONDS = 0.2
SCORE_EVERY_SECONDS = 1.0
"""Longest wait for scores while records keep coming."""
MOST_TOUCHED = 20_000
"""Cases that wait for their scores, at most: what is remembered of them is bounded."""


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
        self._lander = Lander(store)
        self._scorer = scorer
        self._duties = duties
        self._all_scored = False
        self._log = log
        self._clock = clock
        self._stopped = threading.Event()
        self.consumed = Consumed()

    def stop(self) -> None:
        """Ask the loop to end after the step it is in."""
        self._stopped.set()

    def run(self, *, until_idle: bool, report: Callable[[Consumed], None]) -> Consumed:
        """Consume until `stop`, or until the log has nothing new and everything is scored."""
        offsets = self._lander.offsets()
        self._note_gaps(offsets)
        self._source.seek(offsets)
        for duty in self._duties:
            duty.begin()
        unscored, busy, last_scored = True, False, self._clock()
        while not self._stopped.is_set():
            batch = self._source.poll(RECORDS_PER_BATCH, 0 if busy else POLL_SECONDS)
            if batch.records or batch.next_offsets or batch.traces:
                self.consumed.landed.add(self._lander.land(batch))
                unscored = unscored or bool(batch.records)
                report(self.consumed)
            caught_up = len(batch.records) < RECORDS_PER_BATCH and not batch.more
            late = not until_idle and self._clock() - last_scored >= SCORE_EVERY_SECONDS
            many = len(self._lander.touched) >= MOST_TOUCHED
            due = unscored and (caught_up or late or many)
            touched = self._lander.take_touched() if due else None
            if touched is not None:
                self._score(touched)
                unscored, last_scored = False, self._clock()
                report(self.consumed)
            busy = any([duty.step(touched) for duty in self._duties])
            nothing = not batch.records and not batch.more
            done = not due and nothing and all(duty.idle for duty in self._duties)
            if until_idle and done:
                break
        return self.consumed

    def _score(self, touched: Touched) -> None:
        if self._scorer is not None:
            # At first there may be more than what landed just now: of a killed run, of other metrics.
            which = touched if self._all_scored else None
            _, cases = self._scorer.score(
                "live", self._log, touched=which, stopped=self._stopped.is_set
            )
            self.consumed.cases_scored += cases
            self._all_scored = True

    def _note_gaps(self, offsets: Mapping[Partition, int]) -> None:
        positions = log_positions(self._source.bounds(), offsets)
        self.consumed.gaps += [position.gap for position in positions if position.gap]
