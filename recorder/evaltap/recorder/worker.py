"""The background thread: from messages to turns on the log.

One thread for each recorder and process, a daemon, started by the first event.  Everything slow
happens here: reading spans, assembling, redacting, encoding, the disk.
"""

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from evaltap.recorder.assembler import Assembler, AssemblerLimits
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.errors import Faults
from evaltap.recorder.inlet import Close, Flush, Given, Inlet, Message, Observed, RunLost
from evaltap.recorder.intake import take
from evaltap.recorder.ledger import Ledger
from evaltap.recorder.observation import Observation, RunEnded
from evaltap.recorder.outlet import Outlet
from evaltap.recorder.pacing import LONG_REST_SECONDS, REST_SECONDS, Pace, breathe, keep

TICK_SECONDS = 0.2
MAX_MESSAGES = 1_000
"""Messages taken before what they completed is written."""
MAX_REMEMBERED_DROPS = 10_000
POLITE_SECONDS = 0.02
"""How long a turn that has ended may wait in favour of the agent's thread."""
LATE_SECONDS = 0.08
"""When a turn read from spans is too late to be hurried: a large trace is read at ease from then on."""
BURST_MESSAGES = 100
"""More raw items than this waiting, some ten turns at once, come faster than they could be written."""
LEISURE_SECONDS = 1.0
"""How long such a burst may wait in favour of the agent's thread."""
FLUSH_AHEAD_NS = 30_000_000_000
"""How far the time is put forward for the sources when a flush waits; less than they keep things."""


class ObservationSource(Protocol):
    """Reads raw items into observations; called by the background thread only.

    An exception is counted and costs only the item at hand.
    """

    def process(self, item: Any) -> Iterable[Observation]:
        """Take one item that was submitted and return what it says."""
        ...

    def tick(self, now_ns: int) -> Iterable[Observation]:
        """Return what has become due; called some times a second, with the time of day."""
        ...

    def close(self) -> Iterable[Observation]:
        """Return what is left; nothing is submitted after it."""
        ...


class Worker:
    """One life of the background thread; a forked child and a restart make their own."""

    def __init__(
        self,
        config: RecorderConfig,
        inlet: Inlet,
        outlet: Outlet,
        ledger: Ledger,
        faults: Faults,
        sources: Sequence[ObservationSource],
        version: str,
    ) -> None:
        self.outlet = outlet
        self.alive = True
        self.complete = False
        self._config = config
        self._inlet = inlet
        self._ledger = ledger
        self._faults = faults
        self._sources = sources
        self._assembler = Assembler(
            AssemblerLimits(
                max_open_runs=config.open_max_turns,
                max_bytes=config.open_max_bytes,
                idle_seconds=config.idle_timeout_seconds,
            ),
            recorder_version=version,
        )
        self._flushes: list[Flush] = []
        self._urgent = False
        self._waited_since: float | None = None
        self._leisure_until = 0.0
        self._dropped_turns: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.thread = threading.Thread(target=self.run, name="evaltap-recorder", daemon=True)

    @property
    def open_turns(self) -> int:
        """The number of turns that have begun and not ended."""
        return self._assembler.open_runs

    def run(self) -> None:
        """Work until a Close message; an error costs the cycle at hand, never the thread."""
        keep(Pace(self._longest_rest, self._inlet.hurry.wait))
        try:
            closing: Close | None = None
            while closing is None:
                try:
                    closing = self._cycle()
                except Exception as error:
                    # The last guard: whatever it was, the next cycle may well work.
                    self._faults.report("worker", error)
            self.complete = self._finish(closing)
        finally:
            self.alive = False

    def _cycle(self) -> Close | None:
        caught_up = len(self._inlet) == 0 or self._leisure_until == 0
        first = self._inlet.get(self._patience())
        if caught_up:
            # The thread is started by the first message, which is then there already.
            self._leisure_until = time.monotonic() + LEISURE_SECONDS
        if first is not None and not isinstance(first, Flush | Close):
            # Let a few more come: one transaction for all of them costs less.  Most of the
            # interval is left for the work itself.
            self._inlet.hurry.wait(self._config.flush_interval_seconds / 5)
        messages = 0
        message = first
        while message is not None:
            if isinstance(message, Close):
                return message
            if isinstance(message, Flush):
                self._inlet.hurry.clear()
                self._urgent = True
                self._hasten(message)
            else:
                self._handle(message)
                breathe()
            messages += 1
            message = self._inlet.get(0) if messages < MAX_MESSAGES else None
        self._tick()
        if self.outlet.write():
            while self._flushes:
                self._flushes.pop().done.set()
        self._urgent, self._waited_since = False, None
        self.outlet.state()
        self._faults.log(time.monotonic())
        return None

    def _patience(self) -> float:
        """Return how long to wait for a message before looking after what is open."""
        retry = self.outlet.seconds_to_retry()
        return TICK_SECONDS if retry is None else min(TICK_SECONDS, retry)

    def _longest_rest(self) -> float:
        """Return how many seconds to rest: none when somebody waits or something would be lost."""
        if self._urgent or self._inlet.hurry.is_set() or self._inlet.nearly_full:
            return 0
        now = time.monotonic()
        age = 0.0 if self._waited_since is None else now - self._waited_since
        if self._inlet.observes:
            return 0 if age > POLITE_SECONDS else REST_SECONDS
        if len(self._inlet) > BURST_MESSAGES:
            return LONG_REST_SECONDS if now < self._leisure_until else REST_SECONDS
        return 0 if POLITE_SECONDS < age < LATE_SECONDS else REST_SECONDS

    def _note_waiting(self) -> None:
        """Note that a turn has ended which waits to be written, if it is the first one to do so."""
        if self._waited_since is None:
            self._waited_since = time.monotonic()

    def _handle(self, message: Message) -> None:
        """Take one message; an error costs the turn or the item that it belongs to."""
        try:
            if isinstance(message, Observed):
                if isinstance(message.observation, RunEnded):
                    self._note_waiting()
                self._feed(message.observation, message.weight)
            elif isinstance(message, tuple):
                # It may be the end of a turn; only the source could tell.
                self._note_waiting()
                source, item = message
                self._feed_all(source.process(item))
            elif isinstance(message, Given):
                self.outlet.add_feedback(message.feedback)
            elif isinstance(message, RunLost):
                self._drop_run(message)
        except Exception as error:
            # A source's reader met something it cannot read; the others must not suffer.
            self._faults.report(type(message).__name__, error)
            if isinstance(message, Observed):
                seen = message.observation
                self._drop_run(RunLost(seen.run_id, seen.time_ns, "internal_error"))

    def _tick(self, ahead_ns: int = 0) -> None:
        now_ns = time.time_ns()
        for source in self._sources:
            try:
                self._feed_all(source.tick(now_ns + ahead_ns))
            except Exception as error:
                # See _handle.
                self._faults.report("source.tick", error)
        for case in self._assembler.expire(now_ns):
            self._emit(case)

    def _feed_all(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            breathe()
            self._feed(*take(observation, self._config.field_max_bytes))

    def _feed(self, observation: Observation, weight: int) -> None:
        for case in self._assembler.feed(observation, time.time_ns(), weight=weight):
            self._emit(case)

    def _emit(self, case: dict[str, Any]) -> None:
        turn = case["actualConversation"][0]
        key = (case["evalId"], turn["invocationId"])
        if key in self._dropped_turns:
            return
        trace_id = turn.get("telemetry", {}).get("traceId")
        dropped = self._inlet.lost_traces.get(trace_id)
        if dropped is not None:
            # The first turn of the trace was counted when its span was lost.
            self._drop_turn(key, "queue_full", counted=dropped == 0)
            self._inlet.lost_traces[trace_id] = dropped + 1
            return
        self.outlet.add(case)

    def _drop_run(self, lost: RunLost) -> None:
        """Close the run of which something was lost, and drop what it had become."""
        end = RunEnded(lost.run_id, lost.time_ns, status="incomplete", close_reason="evicted")
        cases = self._assembler.feed(end, time.time_ns())
        for index, case in enumerate(cases):
            if index == 0:
                turn = case["actualConversation"][0]
                self._drop_turn((case["evalId"], turn["invocationId"]), lost.reason)
            else:
                self._emit(case)

    def _drop_turn(self, key: tuple[str, str], reason: str, *, counted: bool = False) -> None:
        """Count a turn as dropped, once; a later revision of it would be as incomplete."""
        if key in self._dropped_turns:
            return
        self._dropped_turns[key] = None
        if len(self._dropped_turns) > MAX_REMEMBERED_DROPS:
            self._dropped_turns.popitem(last=False)
        if not counted:
            self._ledger.dropped(reason)

    def _hasten(self, message: Flush) -> None:
        """Have all that came before the message written next; it is answered once that is done."""
        # Somebody waits: what is complete need not be quiet for a while first.
        self._tick()
        self._tick(FLUSH_AHEAD_NS)
        self.outlet.retry_now()
        self._flushes = [flush for flush in self._flushes if flush.deadline > time.monotonic()]
        self._flushes.append(message)

    def _finish(self, closing: Close) -> bool:
        """Write out everything that is open or waiting, by the deadline of the message."""
        self._urgent = True
        for source in self._sources:
            try:
                self._feed_all(source.close())
            except Exception as error:
                # See _handle.
                self._faults.report("source.close", error)
        for case in self._assembler.close_all("shutdown"):
            self._emit(case)
        try:
            complete = self.outlet.finish(closing.deadline)
        except Exception as error:
            # The sink's own close failed; everything was written or counted before.
            self._faults.report("sink.close", error)
            complete = False
        self._faults.log(float("inf"))
        return complete
