"""Counts of where every turn went: `recorded = delivered + spooled + dropped`."""

from collections import Counter, deque
from collections.abc import Callable, Mapping, Sized
from dataclasses import dataclass, field

from evaltap.recorder.threads import allocate_lock

LOSSES = (
    "close_timeout",
    "internal_error",
    "log_unavailable",
    "queue_full",
    "switched_off",
    "too_large",
    "unresolved_id",
)
"""Drop reasons that count as losses, because they are not intended, as sampling is."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A snapshot of the recorder; `recorded == delivered + spooled + sum(dropped.values())`.

    The unit is turns; each revision counts separately. `waiting` turns are undecided and enter
    `recorded` only with their outcome.
    """

    recorded: int = 0
    delivered: int = 0
    """Durable on the log: in the local log, or acknowledged by the broker behind the spool."""
    spooled: int = 0
    """Durable in the spool, not yet acknowledged by the broker."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """By reason: sampled_out, queue_full, log_unavailable, too_large, redaction_failed, ..."""
    waiting: int = 0
    """Finished turns that are not on the log yet, or whose session is undecided."""
    queued_events: int = 0
    open_turns: int = 0
    lost_items: int = 0
    """Spans that did not fit into the queue. Each affected trace counts as one turn dropped as
    queue_full, since nothing is left that shows whether it was one."""
    feedback: int = 0
    """Feedback on the log; not a turn, so counted separately."""
    lost_feedback: int = 0
    """Feedback that has no session id, did not fit into the queue, or could not be redacted or written."""
    faults: int = 0
    """Errors inside the recorder; none reached the agent."""


class LiveCounters:
    """The live counts; the background thread writes, any thread reads or refuses turns."""

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._recorded = 0
        self._written = 0
        self._settled = False
        self._dropped: Counter[str] = Counter()
        self._refused: deque[str] = deque()
        self.feedback = 0
        self._lost_feedback = 0
        self._losing_feedback: deque[int] = deque()

    @property
    def lost_turns(self) -> int:
        """How many turns were lost: dropped for a reason in `LOSSES`."""
        drops = self.drops()
        return sum(drops.get(reason, 0) for reason in LOSSES)

    def settle(self, held: Callable[[], int]) -> None:
        """Count the turns held as dropped although a hanging log may still take them."""
        with self._lock:
            if self._settled:
                return
            turns = held()
            self._recorded += turns
            self._dropped["close_timeout"] += turns
            self._settled = True

    def written(self, turns: int, forget: Callable[[], None]) -> None:
        """Count turns that were written to the log, and forget them in the same moment."""
        with self._lock:
            forget()
            self._written += turns
            if self._settled:
                self._dropped["close_timeout"] -= turns
            else:
                self._recorded += turns

    def dropped(self, reason: str, turns: int | Callable[[], int] = 1) -> None:
        """Count dropped turns, or discard and count them in the same moment."""
        with self._lock:
            turns = turns if isinstance(turns, int) else turns()
            if self._settled or not turns:
                return
            self._recorded += turns
            self._dropped[reason] += turns

    def refuse(self, reason: str) -> None:
        """Count a turn that was refused at its start; never blocks, for the agent's threads."""
        self._refused.append(reason)
        self._fold_if_many(self._refused)

    def feedback_written(self, count: int) -> None:
        """Count feedback that was written to the log."""
        with self._lock:
            self.feedback += count

    def feedback_lost(self, count: int = 1) -> None:
        """Count lost feedback; never blocks, also for the agent's threads."""
        self._losing_feedback.append(count)
        self._fold_if_many(self._losing_feedback)

    @property
    def lost_feedback(self) -> int:
        """How many feedback records were lost."""
        with self._lock:
            self._fold()
            return self._lost_feedback

    def drops(self) -> dict[str, int]:
        """Return the dropped turns by reason."""
        with self._lock:
            self._fold()
            return dict(self._dropped)

    def snapshot(self, backlog: int) -> tuple[int, int, int, dict[str, int]]:
        """Return recorded, delivered, spooled and dropped; `backlog` comes from the sink."""
        with self._lock:
            self._fold()
            spooled = min(backlog, self._written)
            return self._recorded, self._written - spooled, spooled, dict(self._dropped)

    def _fold_if_many(self, noted: Sized) -> None:
        if len(noted) > 100 and self._lock.acquire(blocking=False):
            try:
                self._fold()
            finally:
                self._lock.release()

    def _fold(self) -> None:
        while self._refused:
            self._dropped[self._refused.popleft()] += 1
            self._recorded += 1
        while self._losing_feedback:
            self._lost_feedback += self._losing_feedback.popleft()
