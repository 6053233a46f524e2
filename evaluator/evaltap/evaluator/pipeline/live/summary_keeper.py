"""A task of the consumer: refresh the summaries that the page reads, and notify the page of changes."""

import time
from collections.abc import Callable
from typing import Final

from evaltap.evaluator.analysis.summaries.summaries import Refreshed, Summaries
from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.store.database import Store

EVERY_SECONDS: Final = 1.0
FLOOD_SECONDS: Final = 5.0
"""Interval of refreshes while more lands than one refresh covers; such refreshes are larger."""
_SHARE: Final = 6
"""A refresh may take at most one part in this many of the consumer's time."""
_MOST_IN_FLOOD: Final = 20_000
_SECONDS_IN_FLOOD: Final = 0.5
_LAST_SECONDS: Final = 5.0
"""The longest that `close` refreshes; the next start continues from there."""


class Ticks:
    """Counts changes that a page may need to show; may be read from any thread."""

    version = 0
    """A number that grows with every change."""

    def advance(self) -> None:
        """Count a change; called by the store's thread."""
        self.version += 1


class SummaryKeeper:
    """Refreshes the summaries of a store every second, or every five while many records arrive."""

    def __init__(
        self,
        store: Store,
        ticks: Ticks,
        *,
        progress: Callable[[str], None] = lambda _: None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._summaries = Summaries(store)
        self._ticks = ticks
        self._progress = progress
        self._clock = clock
        self._not_before = 0.0
        self._flood = False
        self.idle = False
        """Whether the summaries cover everything that has landed."""

    def begin(self) -> None:
        """Create the summaries if the store has none."""
        if self._summaries.marks() is None:
            self._summaries.make(self._progress)
            self._ticks.advance()

    def step(self, changed: ChangedCases | None) -> bool:
        """Refresh when due.  Always returns False: the next refresh is never urgent."""
        now = self._clock()
        if now < self._not_before:
            self.idle = False  # records may have landed since the last refresh
            return False
        done = self._refresh()
        self._flood = done.behind
        took = self._clock() - now
        every = FLOOD_SECONDS if self._flood else EVERY_SECONDS
        self._not_before = now + max(every, _SHARE * took)
        self.idle = not done.behind
        return False

    def _refresh(self) -> Refreshed:
        done = (
            self._summaries.refresh(most_cases=_MOST_IN_FLOOD, most_seconds=_SECONDS_IN_FLOOD)
            if self._flood
            else self._summaries.refresh()
        )
        if done.cases or done.minutes:
            self._ticks.advance()
        return done

    def close(self) -> None:
        """Refresh the summaries for at most a few seconds."""
        give_up_at = self._clock() + _LAST_SECONDS
        while self._refresh().behind and self._clock() < give_up_at:
            pass
