"""Where every turn went: the counters behind `recorded = delivered + spooled + dropped`."""

import threading
from collections import Counter, deque
from collections.abc import Mapping, Sized
from dataclasses import dataclass, field

LOSSES = (
    "close_timeout",
    "internal_error",
    "log_unavailable",
    "queue_full",
    "switched_off",
    "too_large",
)
"""Reasons for which a turn is dropped that nobody asked for."""


@dataclass(frozen=True, slots=True)
class Counters:
    """A moment of the recorder; `recorded == delivered + spooled + sum(dropped.values())`.

    Counted are turns, each revision of one by itself.  `waiting` are turns that are not decided
    yet; they enter `recorded` together with where they went.
    """

    recorded: int = 0
    delivered: int = 0
    """On the log for good: the local log, or acknowledged by the broker behind it."""
    spooled: int = 0
    """Safe in the local log, not yet acknowledged by the broker behind it."""
    dropped: Mapping[str, int] = field(default_factory=dict)
    """By reason: sampled_out, queue_full, log_unavailable, too_large, redaction_failed, ..."""
    waiting: int = 0
    """Finished turns that the log has not taken yet, or whose session is not decided."""
    queued_events: int = 0
    open_turns: int = 0
    lost_items: int = 0
    """Spans that did not fit into the queue.  Each of their traces is counted as a turn that was
    dropped as queue_full, since nothing is left that shows whether it was one."""
    feedback: int = 0
    """Feedback that the log has taken; it is no turn and has its own count."""
    lost_feedback: int = 0
    """Feedback that found no room, or could not be redacted or written."""
    faults: int = 0
    """Errors inside the recorder; none of them reached the agent."""


class LiveCounters:
    """Keeps the counts; the background thread writes, any thread reads or refuses turns."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._recorded = 0
        self._taken = 0
        self._settled = False
        self._dropped: Counter[str] = Counter()
        self._refused: deque[str] = deque()
        self.feedback = 0
        self._lost_feedback = 0
        self._losing_feedback: deque[int] = deque()

    @property
    def lost_turns(self) -> int:
        """How many turns were dropped that should have been written."""
        drops = self.drops()
        return sum(drops.get(reason, 0) for reason in LOSSES)

    def settle(self, turns: int) -> None:
        """Count turns as dropped that a hanging log may or may not take later; nothing counts after it."""
        self.dropped("close_timeout", turns)
        self._settled = True

    def taken(self, turns: int) -> None:
        """Count turns that the log has taken."""
        with self._lock:
            if self._settled:
                return
            self._recorded += turns
            self._taken += turns

    def dropped(self, reason: str, turns: int = 1) -> None:
        """Count turns that were dropped."""
        with self._lock:
            if self._settled:
                return
            self._recorded += turns
            self._dropped[reason] += turns

    def refuse(self, reason: str) -> None:
        """Count a turn that was not even begun; for the agent's threads, never waits."""
        self._refused.append(reason)
        self._fold_if_many(self._refused)

    def feedback_taken(self, count: int) -> None:
        """Count feedback that the log has taken."""
        with self._lock:
            self.feedback += count

    def feedback_lost(self, count: int = 1) -> None:
        """Count feedback that is nowhere; for the agent's threads too, never waits."""
        self._losing_feedback.append(count)
        self._fold_if_many(self._losing_feedback)

    @property
    def lost_feedback(self) -> int:
        """How much feedback was lost."""
        with self._lock:
            self._fold()
            return self._lost_feedback

    def drops(self) -> dict[str, int]:
        """Return the drops by reason."""
        with self._lock:
            self._fold()
            return dict(self._dropped)

    def snapshot(self, backlog: int) -> tuple[int, int, int, dict[str, int]]:
        """Return recorded, delivered, spooled and dropped; `backlog` is what the sink holds back."""
        with self._lock:
            self._fold()
            spooled = min(backlog, self._taken)
            return self._recorded, self._taken - spooled, spooled, dict(self._dropped)

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
