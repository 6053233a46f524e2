"""When a consumer polls, scores and stops: decided from its state, without doing any of it."""

from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """How much a consumer takes at a time, and how long it lets things wait."""

    records_per_batch: int = 2_000
    """A transaction each; with half as many a turn takes a seventh more processor time."""
    poll_seconds: float = 0.2
    land_every_seconds: float = 0.2
    """How often to land records that come one by one: a transaction costs as much as seventy turns."""
    score_every_seconds: float = 1.0
    """How often to score while records come in large numbers."""
    score_soon_seconds: float = 0.2
    """How often while they come one by one."""
    most_changed: int = 20_000
    """Cases that wait for their scores, at most: what is remembered of them is bounded."""
    landing_memory: str = "48MB"
    """What DuckDB may keep of the file while records land: it is read little of, and grows for ever."""
    large_record: int = 48 << 10
    large_memory: str = "256MB"
    """What it may keep once a record of so many bytes has come: a checkpoint holds a number of rows."""
    reopen_after: int = 100_000
    """Records landed before the file is opened anew, which takes some 50 ms and gives memory back."""


class Schedule:
    """Decides when cases are scored: soon while records trickle, in lots while they flood in.

    With `until_idle` nothing is scored before the log is at its end, or too much waits.
    """

    def __init__(
        self, limits: ConsumerLimits, clock: Callable[[], float], *, until_idle: bool
    ) -> None:
        self._limits = limits
        self._clock = clock
        self._until_idle = until_idle
        self._flood = limits.records_per_batch // 4
        self._scored_at = clock()
        self._land_again_at = clock()
        self._unscored = True
        """Whether something may have landed since the last look."""

    def finish(self) -> None:
        """Stop as soon as all is done, from now on."""
        self._until_idle = True

    def poll_seconds(self, *, busy: bool) -> float:
        """Return how long to wait for records; not at all while something else has work to do."""
        if busy:
            return 0.0
        return self._limits.poll_seconds / (2 if self._unscored else 1)

    def rest_seconds(self, *, busy: bool) -> float:
        """Return how long to let records gather before the next poll; not at all when there is other work."""
        if busy or self._until_idle:
            return 0.0
        return max(0.0, self._land_again_at - self._clock())

    def landed(self, records: int) -> None:
        """Note that records have landed."""
        self._unscored = self._unscored or records > 0
        if 0 < records < self._flood:
            self._land_again_at = self._clock() + self._limits.land_every_seconds

    def is_due(self, records: int, *, at_end: bool, full: bool) -> bool:
        """Tell whether to score now, after a batch of so many records.

        `at_end`: the log had nothing more; `full`: as many cases wait as may be kept.
        """
        if not self._unscored:
            return False
        floods = records >= self._flood
        pause = self._limits.score_every_seconds if floods else self._limits.score_soon_seconds
        late = not self._until_idle and self._clock() - self._scored_at >= pause
        return at_end or full or late

    def scored(self) -> None:
        """Note that all that had landed was looked at."""
        self._unscored, self._scored_at = False, self._clock()

    def is_over(self, *, at_end: bool, due: bool, idle: bool) -> bool:
        """Tell whether all is done; `idle`: nothing else has anything left to do."""
        return self._until_idle and at_end and not due and idle
