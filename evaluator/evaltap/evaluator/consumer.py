"""The consumer: reads a log, lands its records, scores what has no score, again and again.

Landing and scoring are separate steps over the same store, so a crash between them loses nothing:
what is landed is pending until it has a score.
"""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from evaltap.evaluator.landing import LandedCounts, Lander
from evaltap.evaluator.sources.base import CaseSource, Partition
from evaltap.evaluator.store import Store

if TYPE_CHECKING:
    from evaltap.evaluator.jobs import PendingScorer

RECORDS_PER_BATCH = 1_000
POLL_SECONDS = 0.2
SCORE_EVERY_SECONDS = 1.0
"""Longest wait for scores while records keep coming."""


@dataclass(slots=True)
class Consumed:
    """What a consumer has done since it started."""

    landed: LandedCounts = field(default_factory=LandedCounts)
    cases_scored: int = 0
    gaps: list[str] = field(default_factory=list)


class Consumer:
    """Lands a source into a store and scores it; `stop` may be called from anywhere.

    `log` is what the run's `source` says.
    """

    def __init__(
        self,
        source: CaseSource,
        store: Store,
        *,
        scorer: "PendingScorer | None" = None,
        log: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._source = source
        self._lander = Lander(store)
        self._scorer = scorer
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
        unscored, last_scored = True, self._clock()
        while not self._stopped.is_set():
            batch = self._source.poll(RECORDS_PER_BATCH, POLL_SECONDS)
            if batch.records:
                self.consumed.landed.add(self._lander.land(batch))
                unscored = True
                report(self.consumed)
            caught_up = len(batch.records) < RECORDS_PER_BATCH
            late = not until_idle and self._clock() - last_scored >= SCORE_EVERY_SECONDS
            if unscored and (caught_up or late):
                self._score()
                unscored, last_scored = False, self._clock()
                report(self.consumed)
            elif until_idle and not batch.records:
                break
        return self.consumed

    def _score(self) -> None:
        if self._scorer is not None:
            _, cases = self._scorer.score("live", self._log, stopped=self._stopped.is_set)
            self.consumed.cases_scored += cases

    def _note_gaps(self, offsets: Mapping[Partition, int]) -> None:
        for partition, bounds in self._source.bounds().items():
            stored = offsets.get(partition)
            place = f"{partition.topic}[{partition.number}]"
            if stored is not None and stored < bounds.start:
                self.consumed.gaps.append(
                    f"{place}: records {stored} to {bounds.start - 1} are gone from the log and were"
                    " never landed"
                )
            elif stored is not None and stored > bounds.end:
                self.consumed.gaps.append(
                    f"{place}: ends at {bounds.end}, before what was landed ({stored}); it was made"
                    " anew and is read from its start"
                )
