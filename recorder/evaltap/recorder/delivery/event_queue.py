"""The bounded queue from the agent's threads to the background thread.

Putting never blocks: it is a `SimpleQueue`, whose `put` is reentrant, and there is no other lock.
So garbage collection, signal handlers and `__del__` may record in the middle of recording. When the
queue is full, the whole turn of the rejected event is dropped: a turn without one of its tool calls
would look complete and get a wrong score.
"""

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from evaltap.recorder.observation import Observation, RunEnded, RunStarted
from evaltap.recorder.protocols import ItemSource
from evaltap.recorder.telemetry.sdk import trace_id_of
from evaltap.recorder.threads import Empty, Signal, SimpleQueue
from evaltap.schemas.wire.feedback import Feedback

ITEM_BYTES = 2000
"""Assumed size of a source's raw item (a span); measuring it would cost more than it holds."""
RESERVED_SHARE = 0.25
"""Share of the close timeout reserved for counting leftovers, writing what is ready, and the last
manifest."""
STANDSTILL_SECONDS = 0.5
"""How long nobody looks at the time if the process stands still."""
MOST_STANDSTILL_SECONDS = 30.0
"""How much of it a close waits for."""
PATIENT_CLOSES = 5
"""How many close timeouts an unhurried close takes at most, while turns are being written."""
MAX_LOST_RUNS = 10_000
MAX_LOST_TRACES = 50_000


# Not frozen: created on the agent's threads, where freezing doubles the cost.


@dataclass(slots=True)
class Observed:
    """An observation from a plugin or the plain API."""

    observation: Observation
    weight: int


Submitted = tuple[ItemSource, object]
"""A source and a raw item for it; a plain tuple, since one is created for every span in the process."""


@dataclass(frozen=True, slots=True)
class FeedbackGiven:
    """Feedback on a turn that may have ended long ago."""

    feedback: Feedback
    weight: int


@dataclass(frozen=True, slots=True)
class RunLost:
    """The run lost an observation and must not be recorded."""

    run_id: str
    time_ns: int
    reason: str


class Deadline:
    """When closing ends (monotonic seconds): so many seconds from now, or from the last progress.

    Time in which the process stood still does not count, as when a virtual machine pauses or another thread
    keeps the interpreter's lock: then not even the thread looked that waits for the end, as it does at least
    20 times a second.
    """

    def __init__(self, seconds: float, at_most: float) -> None:
        self._looked_at = time.monotonic()
        self._seconds = seconds
        self._latest = self._looked_at + at_most
        self._at = self._looked_at + seconds
        self._pardon = MOST_STANDSTILL_SECONDS

    @property
    def at(self) -> float:
        """The monotonic seconds, as far as is known now."""
        now = time.monotonic()
        still = min(now - self._looked_at, self._pardon)
        self._looked_at = now
        if still > STANDSTILL_SECONDS:
            self._pardon -= still
            self._at += still
            self._latest += still
        return self._at

    @property
    def cutoff(self) -> float:
        """When to stop and write only what is ready."""
        return self.at - self._seconds * RESERVED_SHARE

    def moved(self) -> None:
        """Note progress: a turn was read or written."""
        self._at = min(time.monotonic() + self._seconds, self._latest)

    def seconds_left(self) -> float:
        """Return the seconds until then, 0 after it."""
        return max(0.0, self.at - time.monotonic())


@dataclass(frozen=True, slots=True)
class Flush:
    """Request to write everything queued before it; sets `done` afterwards."""

    done: Signal
    deadline: float


@dataclass(frozen=True, slots=True)
class Close:
    """The last message: write everything by the deadline."""

    deadline: Deadline


Message = Observed | Submitted | FeedbackGiven | RunLost | Flush | Close


class EventQueue:
    """A queue bounded by count and bytes; any thread puts, the background thread gets.

    `refuse` counts a turn whose first event did not fit.
    """

    def __init__(self, *, max_events: int, max_bytes: int, refuse: Callable[[str], None]) -> None:
        self._refuse = refuse
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._queue: SimpleQueue[Message] = SimpleQueue()
        # A plain sum and no lock: a signal handler or the garbage collector may record in the
        # middle of recording, and would deadlock on its own thread. CPython switches threads only
        # at calls and jumps, and there is none inside `+=`; should an update be lost anyway, the
        # sum resets whenever the queue is empty.
        self._held_bytes = 0
        self._lost_runs: dict[str, None] = {}
        self.lost_traces: dict[str, int] = {}
        """Trace ids of dropped spans, with the number of turns dropped for each."""
        self.hurry = Signal()
        self.closing: Close | None = None
        self.observes = False
        """True after the first observation: a turn may end any moment and should be written soon."""

    def __len__(self) -> int:
        """Return the number of queued messages."""
        return self._queue.qsize()

    @property
    def nearly_full(self) -> bool:
        """True when the background thread should only drain the queue."""
        return (
            self._queue.qsize() * 4 > self._max_events * 3
            or self._held_bytes * 4 > self._max_bytes * 3
        )

    def observe(self, observation: Observation, weight: int) -> None:
        """Queue an observation, or drop its run when the queue is full."""
        self.observes = True
        if self._lost_runs and observation.run_id in self._lost_runs:
            if isinstance(observation, RunEnded):
                self._lost_runs.pop(observation.run_id, None)
            return
        if self._has_room(weight):
            self._held_bytes += weight
            self._queue.put(Observed(observation, weight))
        elif isinstance(observation, RunStarted):
            # None of the run is queued yet, so there is nothing to undo.
            self._ignore(observation.run_id)
            self._refuse("queue_full")
        else:
            self.lose(observation.run_id, observation.time_ns, "queue_full")
            if isinstance(observation, RunEnded):
                self._lost_runs.pop(observation.run_id, None)

    def lose(self, run_id: str, time_ns: int, reason: str) -> None:
        """Drop the whole run with this reason; its later events are ignored."""
        if run_id in self._lost_runs:
            return
        self._ignore(run_id)
        # Exceeds the bound, but is small and happens once per started run: the background thread
        # must learn of it, in order.
        self._queue.put(RunLost(run_id, time_ns, reason))

    def submit(self, source: ItemSource, item: object) -> bool:
        """Queue a raw item; return False when the queue is full and it was dropped."""
        if self._held_bytes + ITEM_BYTES > self._max_bytes or (
            self._queue.qsize() >= self._max_events
        ):
            self._lose_trace(item)
            return False
        self._held_bytes += ITEM_BYTES
        self._queue.put((source, item))
        return True

    def put_feedback(self, feedback: Feedback, weight: int) -> bool:
        """Queue feedback; return False when the queue is full and it was dropped."""
        if not self._has_room(weight):
            return False
        self._held_bytes += weight
        self._queue.put(FeedbackGiven(feedback, weight))
        return True

    def control(self, message: Flush | Close) -> None:
        """Queue a control message, which always fits, and wake the background thread."""
        if isinstance(message, Close):
            self.closing = message
        self._queue.put(message)
        self.hurry.set()

    def get(self, timeout_seconds: float) -> Message | None:
        """Return the next message, or None after the timeout; for the background thread."""
        try:
            message = self._queue.get(timeout=max(0.0, timeout_seconds))
        except Empty:
            self._held_bytes = 0
            return None
        if isinstance(message, Observed | FeedbackGiven):
            self._held_bytes -= message.weight
        elif isinstance(message, tuple):
            self._held_bytes -= ITEM_BYTES
        if self._held_bytes < 0:
            self._held_bytes = 0  # the sum was reset just as this message was put
        return message

    def abandon(
        self,
        sources: Sequence[ItemSource],
        open_runs: Iterable[str] = (),
        in_hand: Message | None = None,
    ) -> int:
        """Empty the queue unread; return how many turns were lost, with the open ones and the sources'."""
        runs = set(open_runs)
        items: dict[int, list[object]] = {id(source): [] for source in sources}
        known = {id(source): source for source in sources}
        message = in_hand or self.get(0)
        while message is not None:
            if isinstance(message, Observed):
                runs.add(message.observation.run_id)
            elif isinstance(message, RunLost):
                runs.add(message.run_id)
            elif isinstance(message, tuple):
                source, item = message
                known[id(source)] = source
                items.setdefault(id(source), []).append(item)
            message = self.get(0)
        return len(runs) + sum(_abandoned(source, items[key]) for key, source in known.items())

    def _ignore(self, run_id: str) -> None:
        """Ignore the run's events until it ends."""
        if len(self._lost_runs) >= MAX_LOST_RUNS:
            self._lost_runs.clear()
        self._lost_runs[run_id] = None

    def _lose_trace(self, item: object) -> None:
        """Count the trace of a dropped span as one dropped turn, once; no other span of it may arrive."""
        trace_id = trace_id_of(item)
        if trace_id is None or (known := format(trace_id, "032x")) in self.lost_traces:
            return
        if len(self.lost_traces) >= MAX_LOST_TRACES:
            self.lost_traces.clear()
        self.lost_traces[known] = 0
        self._refuse("queue_full")

    def _has_room(self, weight: int) -> bool:
        return (
            self._queue.qsize() < self._max_events and self._held_bytes + weight <= self._max_bytes
        )


def _abandoned(source: ItemSource, items: Sequence[object]) -> int:
    try:
        return source.abandon(items)
    except Exception:  # a source of someone else's; one turn for each item is the safe side
        return len(items)
