"""When a consumer polls, scores and stops: decided from its state, without doing any of it."""

from collections.abc import Callable
from dataclasses import dataclass


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

    def is_over(self, *, at_end: bool, due: bool, idle: bool) -> bool:
        """Return whether everything is done; `idle`: no task has work left."""
        return self._until_idle and at_end and not due and idle
