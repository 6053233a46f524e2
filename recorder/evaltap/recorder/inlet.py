"""The bounded way from the agent's threads to the background thread.

Putting never waits: the queue is a `SimpleQueue`, whose `put` is reentrant, and the lock beside it
is only tried.  Both survive garbage collection, signal handlers and `__del__` that record in the
middle of recording.  When there is no room, the whole turn of the event that did not fit is lost:
a turn that misses one tool call would look complete and be scored wrong.
"""

import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from queue import Empty, SimpleQueue
from typing import Any

from evaltap.recorder.observation import Observation, RunEnded, RunStarted
from evaltap.recorder.telemetry import trace_id_of
from evaltap.schemas.feedback import Feedback

ITEM_BYTES = 2000
"""What a source's raw item (a span) is taken to weigh; weighing it would cost more than it holds."""
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


class Inlet:
    """A queue bounded by number and by bytes; any thread puts, the background thread gets.

    `refuse` counts a turn of which not even the beginning fitted.
    """

    def __init__(self, *, max_events: int, max_bytes: int, refuse: Callable[[str], None]) -> None:
        self._refuse = refuse
        self._max_events = max_events
        self._max_bytes = max_bytes
        self._queue: SimpleQueue[Message] = SimpleQueue()
        self._lock = threading.Lock()
        # Every message counts as one item; this is by how much observations and feedback differ from
        # it.  So items, which are many, need no count and no lock of their own: there is room for one
        # as long as fewer messages wait than `_item_room`.
        self._differing_bytes = 0
        self._late_bytes: deque[int] = deque()
        self._item_room = 0
        self._differ(0)
        self._lost_runs: dict[str, None] = {}
        self.lost_traces: dict[str, int] = {}
        """Trace ids of spans that did not fit, with the number of turns dropped for them."""
        self.hurry = threading.Event()
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
            or self._held_bytes() * 4 > self._max_bytes * 3
        )

    def observe(self, observation: Observation, weight: int) -> None:
        """Put an observation, or lose its run when there is no room."""
        self.observes = True
        if self._lost_runs and observation.run_id in self._lost_runs:
            if isinstance(observation, RunEnded):
                self._lost_runs.pop(observation.run_id, None)
            return
        if self._has_room(weight):
            self._account(weight)
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

    def submit(self, source: Any, item: Any) -> bool:
        """Put a raw item; False when there is no room and it was lost."""
        if self._queue.qsize() >= self._item_room:
            self._lose_trace(item)
            return False
        self._queue.put((source, item))
        return True

    def give(self, feedback: Feedback, weight: int) -> bool:
        """Put feedback; False when there is no room and it was lost."""
        if not self._has_room(weight):
            return False
        self._account(weight)
        self._queue.put(Given(feedback, weight))
        return True

    def control(self, message: Flush | Close) -> None:
        """Put a message that has room always, and wake the background."""
        self._queue.put(message)
        self.hurry.set()

    def get(self, timeout_seconds: float) -> Message | None:
        """Return the next message, None after the time-out; for the background thread."""
        try:
            message = self._queue.get(timeout=max(0.0, timeout_seconds))
        except Empty:
            return None
        if isinstance(message, Observed | Given):
            with self._lock:
                self._differ(ITEM_BYTES - message.weight)
                while self._late_bytes:
                    self._differ(self._late_bytes.popleft())
        return message

    def _ignore(self, run_id: str) -> None:
        """Let nothing more of the run in, until its end."""
        if len(self._lost_runs) >= MAX_LOST_RUNS:
            self._lost_runs.clear()
        self._lost_runs[run_id] = None

    def _lose_trace(self, item: Any) -> None:
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
            self._queue.qsize() < self._max_events
            and self._held_bytes() + weight <= self._max_bytes
        )

    def _held_bytes(self) -> int:
        return self._queue.qsize() * ITEM_BYTES + self._differing_bytes

    def _account(self, weight: int) -> None:
        # Only tried: whoever holds it may be this very thread, interrupted by a signal or the
        # garbage collector.
        if self._lock.acquire(blocking=False):
            try:
                self._differ(weight - ITEM_BYTES)
            finally:
                self._lock.release()
        else:
            self._late_bytes.append(weight - ITEM_BYTES)

    def _differ(self, by_bytes: int) -> None:
        """Account a message that is no item; the lock is held."""
        self._differing_bytes += by_bytes
        room_bytes = self._max_bytes - self._differing_bytes
        self._item_room = min(self._max_events, room_bytes // ITEM_BYTES)
