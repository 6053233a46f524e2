"""A task of the consumer: keep the summaries that a page reads, and tell it when there is something new."""

import time
from collections.abc import Callable
from typing import Final

from evaltap.evaluator.cases.identity import ChangedCases
from evaltap.evaluator.store.database import Store
from evaltap.evaluator.summaries.summaries import Refreshed, Summaries

EVERY_SECONDS: Final = 1.0
FLOOD_SECONDS: Final = 5.0
"""How often while more lands than a step takes; its steps are larger."""
_SHARE: Final = 6
"""A step may take one part in so many of the consumer's time."""
_MOST_IN_FLOOD: Final = 20_000
_SECONDS_IN_FLOOD: Final = 0.5
_LAST_SECONDS: Final = 5.0
"""What the end may take; the next start goes on from there."""


class Ticks:
    """Counts what a page may want to show again; read from any thread."""

    def __init__(self) -> None:
        self._version = 0

    @property
    def version(self) -> int:
        """A number that grows with every change."""
        return self._version

    def advance(self) -> None:
        """Say that something is new; the store's thread does."""
        self._version += 1


class SummaryKeeper:
    """Refreshes the summaries of a store once a second, in a flood every five."""

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
        self._idle = False

    def begin(self) -> None:
        """Make the summaries where there are none."""
        if self._summaries.marks() is None:
            self._summaries.make(self._progress)
            self._ticks.advance()

    def step(self, changed: ChangedCases | None) -> bool:
        """Refresh when it is due; the consumer need not hurry for more."""
        now = self._clock()
        if now < self._not_before:
            self._idle = False  # something may have landed since
            return False
        done = self._refresh()
        self._flood = done.behind
        took = self._clock() - now
        every = FLOOD_SECONDS if self._flood else EVERY_SECONDS
        self._not_before = now + max(every, _SHARE * took)
        self._idle = not done.behind
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

    @property
    def idle(self) -> bool:
        """Whether all that has landed is in the summaries."""
        return self._idle

    def close(self) -> None:
        """Bring the summaries up to date, as far as a few seconds go."""
        give_up_at = self._clock() + _LAST_SECONDS
        while self._refresh().behind and self._clock() < give_up_at:
            pass
