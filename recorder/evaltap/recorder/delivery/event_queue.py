"""The bounded way from the agent's threads to the background thread.

Putting never waits: the queue is a `SimpleQueue`, whose `put` is reentrant, and there is no lock beside
it.  So it survives garbage collection, signal handlers and `__del__` that record in the middle of
recording.  When there is no room, the whole turn of the event that did not fit is lost:
a turn that misses one tool call would look complete and be scored wrong.
"""

import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from evaltap.recorder.observation import Observation, RunEnded, RunStarted
from evaltap.recorder.telemetry.sdk import trace_id_of
from evaltap.schemas.wire.feedback import Feedback

ITEM_BYTES = 2000
"""What a source's raw item (a span) is taken to weigh; weighing it would cost more than it holds."""
RESERVED_SHARE = 0.25
"""Of the time to close, kept for counting what is left, writing what is ready, and the last manifest."""
MAX_LOST_RUNS = 10_000
MAX_LOST_TRACES = 50_000


# Not frozen, since it is made on the agent's threads and freezing doubles what that costs.


@dataclass(slots=True)
class Observed:
    """An observation from a plugin or the plain API."""

    observation: Observation
    weight: int


Submitted = tuple[Any, Any]
"""A source and a raw item for it to read; no class, as one is made for each span of the process."""


@dataclass(frozen=True, slots=True)
class Given:
    """Feedback on a turn that may have ended long ago."""

    feedback: Feedback
    weight: int


@dataclass(frozen=True, slots=True)
class RunLost:
    """The named run lost an observation and must not be recorded."""

    run_id: str
    time_ns: int
    reason: str


@dataclass(frozen=True, slots=True)
class Flush:
    """Everything before this is to be written; `done` is set then."""

    done: threading.Event
    deadline: float


@dataclass(frozen=True, slots=True)
class Close:
    """The last message: write what there is, by the deadline (monotonic seconds)."""

    deadline: float


Message = Observed | Submitted | Given | RunLost | Flush | Close


class EventQueue:
    """A queue bounded by number and by bytes; any thread puts, the background thread gets.

    `refuse` counts a turn of which not even the beginning fitted.
    """

    def __init__(self, *, max_events: int, max_bytes: int, refuse: Callable[[str], None]) -> None:
        self._refuse = refuse
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._queue: SimpleQueue[Message] = SimpleQueue()
        # A plain sum and no lock: a signal handler or the garbage collector may record in the middle of
        # recording, and would wait for its own thread.  CPython changes threads at calls and jumps only,
        # and there is none inside of `+=`; should an update be lost all the same, the sum begins anew
        # whenever the queue is empty.
        self._held_bytes = 0
        self._lost_runs: dict[str, None] = {}
        self.lost_traces: dict[str, int] = {}
        """Trace ids of spans that did not fit, with the number of turns dropped for them."""
        self.hurry = threading.Event()
        self.close_by = 0.0
        self.late_at: float | None = None
        """When only what is ready may still be written (monotonic seconds), once somebody closes."""
        self.observes = False
        """True once an observation came: a turn may end any moment, and is to be written soon."""

    def __len__(self) -> int:
        """Return the number of messages waiting."""
        return self._queue.qsize()

    @property
    def nearly_full(self) -> bool:
        """True when the background should do nothing but take messages."""
        return (
            self._queue.qsize() * 4 > self._max_events * 3
            or self._held_bytes * 4 > self._max_bytes * 3
        )

    def observe(self, observation: Observation, weight: int) -> None:
        """Put an observation, or lose its run when there is no room."""
        self.observes = True
        if self._lost_runs and observation.run_id in self._lost_runs:
            if isinstance(observation, RunEnded):
                self._lost_runs.pop(observation.run_id, None)
            return
        if self._has_room(weight):
            self._held_bytes += weight
            self._queue.put(Observed(observation, weight))
        elif isinstance(observation, RunStarted):
            # Nothing of it is inside yet, so there is nothing to take back.
            self._ignore(observation.run_id)
            self._refuse("queue_full")
        else:
            self.lose(observation.run_id, observation.time_ns, "queue_full")
            if isinstance(observation, RunEnded):
                self._lost_runs.pop(observation.run_id, None)

    def lose(self, run_id: str, time_ns: int, reason: str) -> None:
        """Have the run dropped as a whole, with this reason; what still comes of it is ignored."""
        if run_id in self._lost_runs:
            return
        self._ignore(run_id)
        # Beyond the bound, but small and once for a run that has begun: the background must learn
        # of it, in order.
        self._queue.put(RunLost(run_id, time_ns, reason))

    def submit(self, source: object, item: object) -> bool:
        """Put a raw item; False when there is no room and it was lost."""
        if self._held_bytes + ITEM_BYTES > self._max_bytes or (
            self._queue.qsize() >= self._max_events
        ):
            self._lose_trace(item)
            return False
        self._held_bytes += ITEM_BYTES
        self._queue.put((source, item))
        return True

    def give(self, feedback: Feedback, weight: int) -> bool:
        """Put feedback; False when there is no room and it was lost."""
        if not self._has_room(weight):
            return False
        self._held_bytes += weight
        self._queue.put(Given(feedback, weight))
        return True

    def control(self, message: Flush | Close) -> None:
        """Put a message that has room always, and wake the background."""
        if isinstance(message, Close):
            now = time.monotonic()
            self.close_by = message.deadline
            self.late_at = now + (message.deadline - now) * (1 - RESERVED_SHARE)
        self._queue.put(message)
        self.hurry.set()

    def get(self, timeout_seconds: float) -> Message | None:
        """Return the next message, None after the time-out; for the background thread."""
        try:
            message = self._queue.get(timeout=max(0.0, timeout_seconds))
        except Empty:
            self._held_bytes = 0
            return None
        if isinstance(message, Observed | Given):
            self._held_bytes -= message.weight
        elif isinstance(message, tuple):
            self._held_bytes -= ITEM_BYTES
        if self._held_bytes < 0:
            self._held_bytes = 0  # the sum began anew just when this message was put
        return message

    def abandon(self, open_runs: Iterable[str] = ()) -> int:
        """Take all that waits without looking at it; return how many turns that and the open ones are."""
        lost: set[object] = set(open_runs)
        while (message := self.get(0)) is not None:
            if isinstance(message, Observed):
                lost.add(message.observation.run_id)
            elif isinstance(message, RunLost):
                lost.add(message.run_id)
            elif isinstance(message, tuple):
                lost.add(trace_id_of(message[1]))
        return len(lost)

    def _ignore(self, run_id: str) -> None:
        """Let nothing more of the run in, until its end."""
        if len(self._lost_runs) >= MAX_LOST_RUNS:
            self._lost_runs.clear()
        self._lost_runs[run_id] = None

    def _lose_trace(self, item: object) -> None:
        """Count the trace of a lost span as a dropped turn, once; it may never be seen again."""
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
