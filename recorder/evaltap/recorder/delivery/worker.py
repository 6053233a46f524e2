"""The background thread: from queued messages to turns on the log.

One daemon thread per recorder and process, started by the first event. All slow work happens here:
reading spans, assembling, redacting, encoding, disk I/O.
"""

import encodings.ascii  # noqa: F401  # see `test_the_background_thread_imports_nothing`
import time
from collections import OrderedDict
from collections.abc import Iterable, Sequence

from evaltap.recorder.assembly.assembler import Assembler, AssemblerLimits
from evaltap.recorder.assembly.case import installed_version
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.delivery.counters import LiveCounters
from evaltap.recorder.delivery.event_queue import (
    Close,
    EventQueue,
    FeedbackGiven,
    Flush,
    Message,
    Observed,
    RunLost,
)
from evaltap.recorder.delivery.lifecycle import repeat_unheard_sigterm
from evaltap.recorder.delivery.retrying_writer import RetryingWriter
from evaltap.recorder.faults import Faults
from evaltap.recorder.observation import Observation, RunEnded, measured, snapshot
from evaltap.recorder.pacing import DEFAULT_PACE, Pacer, set_pace, yield_to_agent
from evaltap.recorder.protocols import ItemSource
from evaltap.recorder.threads import BackgroundThread
from evaltap.schemas.data import CaseData

TICK_SECONDS = 0.2
MAX_MESSAGES = 1_000
MAX_CYCLE_SECONDS = 0.5
"""Messages processed, and time spent on them, before the completed turns are written."""
MAX_REMEMBERED_DROPS = 10_000
FLUSH_AHEAD_NS = 30_000_000_000
"""How far a flush advances the sources' clock; less than the time they keep traces."""


class Worker:
    """Runs one background thread; a forked child and a restart create their own."""

    def __init__(
        self,
        config: RecorderConfig,
        events: EventQueue,
        writer: RetryingWriter,
        counters: LiveCounters,
        faults: Faults,
        sources: Sequence[ItemSource],
    ) -> None:
        self.writer = writer
        self.alive = True
        self.complete = False
        self._config = config
        self._events = events
        self._counters = counters
        self._faults = faults
        self._sources = sources
        self._assembler = Assembler(
            AssemblerLimits(
                max_open_runs=config.open_max_turns,
                max_bytes=config.open_max_bytes,
                idle_seconds=config.idle_timeout_seconds,
            )
        )
        self._unemitted = 0
        self._feeding: str | None = None
        """The run whose observation is being read."""
        self._flushes: list[Flush] = []
        self._urgent = False
        self._waited_since: float | None = None
        self._burst_until = 0.0
        self._dropped_turns: OrderedDict[tuple[str, str], None] = OrderedDict()
        self.thread = BackgroundThread(self.run)

    @property
    def open_turns(self) -> int:
        """The number of turns started and not ended."""
        return self._assembler.open_runs

    @property
    def unwritten_turns(self) -> int:
        """The number of turns that have ended and are not written."""
        return self._unemitted + self.writer.unwritten

    def lose_rest(self, in_hand: Message | None = None) -> int:
        """Discard the queue, the open turns and what sources hold; return how many turns are lost.

        Called by the thread itself when its time is up, by another one when it hangs.
        """
        open_runs = self._assembler.abandon()
        if self._feeding is not None:
            open_runs.append(self._feeding)
        return self._events.abandon(self._sources, open_runs, in_hand)

    def run(self) -> None:
        """Work until a Close message; an error costs the current cycle, never the thread.

        Every BaseException is caught here and in what is called from here: sinks, redactors and native
        code raise SystemExit, CancelledError or the panic of a Rust extension, and none of them is the
        agent's in this thread.
        """
        set_pace(Pacer(self._longest_rest, self._events.hurry.wait))
        try:
            self._assembler.recorder_version = installed_version()
            closing: Close | None = None
            while closing is None:
                try:
                    closing = self._cycle()
                except BaseException as error:
                    # The last guard: whatever the error, the next cycle may succeed.
                    self._faults.report("worker", error)
            self.complete = self._finish(closing)
        finally:
            self.alive = False

    def _cycle(self) -> Close | None:
        caught_up = len(self._events) == 0 or self._burst_until == 0
        first = self._events.get(self._patience())
        repeat_unheard_sigterm()
        if caught_up:
            # The first message starts the thread, so it is already queued.
            self._burst_until = time.monotonic() + DEFAULT_PACE.burst_wait_seconds
        if first is not None and not isinstance(first, Flush | Close):
            # Let a few more arrive: one transaction for all of them is cheaper. Most of the
            # interval is left for the work itself.
            self._events.hurry.wait(self._config.flush_interval_seconds / 5)
        messages = 0
        until = time.monotonic() + MAX_CYCLE_SECONDS
        message = first
        while message is not None:
            if isinstance(message, Close):
                return message
            if self._is_past_cutoff():
                self._abandon(message)
                return self._events.closing
            if isinstance(message, Flush):
                self._events.hurry.clear()
                self._urgent = True
                self._expedite(message)
            else:
                self._handle(message)
                yield_to_agent()
            messages += 1
            goes_on = messages < MAX_MESSAGES and time.monotonic() < until
            message = self._events.get(0) if goes_on else None
        self._tick()
        if self.writer.write():
            while self._flushes:
                self._flushes.pop().done.set()
        self._urgent, self._waited_since = False, None
        self.writer.write_manifest()
        self._faults.log(time.monotonic())
        # The Close message is gone if the closing thread gave this one up and emptied the queue.
        return self._events.closing if self._is_past_cutoff() else None

    def _patience(self) -> float:
        """Return how long to wait for a message before checking open runs."""
        retry = self.writer.seconds_to_retry()
        return TICK_SECONDS if retry is None else min(TICK_SECONDS, retry)

    def _longest_rest(self) -> float:
        """Return the longest sleep in seconds: 0 when someone waits or events would be dropped."""
        if self._urgent or self._events.hurry.is_set() or self._events.nearly_full:
            return 0
        pace, now = DEFAULT_PACE, time.monotonic()
        age = 0.0 if self._waited_since is None else now - self._waited_since
        if self._events.observes:
            rests = age <= pace.turn_wait_seconds
        elif len(self._events) > pace.burst_messages:
            return pace.long_rest_seconds if now < self._burst_until else pace.rest_seconds
        else:
            rests = not pace.turn_wait_seconds < age < pace.span_wait_seconds
        return pace.rest_seconds if rests else 0

    def _note_waiting(self) -> None:
        """Note that a finished turn waits to be written, if it is the first one."""
        if self._waited_since is None:
            self._waited_since = time.monotonic()

    def _handle(self, message: Message) -> None:
        """Process one message; an error costs only its turn or item."""
        try:
            if isinstance(message, Observed):
                if isinstance(message.observation, RunEnded):
                    self._note_waiting()
                self._feed(message.observation, message.weight)
            elif isinstance(message, tuple):
                # It may end a turn; only the source knows.
                self._note_waiting()
                source, item = message
                self._feed_all(source.process(item))
            elif isinstance(message, FeedbackGiven):
                self.writer.add_feedback(message.feedback)
            elif isinstance(message, RunLost):
                self._drop_run(message)
        except BaseException as error:
            # A source failed on an item it cannot read; the others must not suffer.
            self._faults.report(type(message).__name__, error)
            if isinstance(message, Observed):
                seen = message.observation
                self._drop_run(RunLost(seen.run_id, seen.time_ns, "internal_error"))

    def _tick(self, ahead_ns: int = 0) -> None:
        now_ns = time.time_ns()
        for source in self._sources:
            try:
                self._feed_all(source.tick(now_ns + ahead_ns))
            except BaseException as error:
                # See _handle.
                self._faults.report("source.tick", error)
        self._emit_all(self._assembler.expire(now_ns))

    def _feed_all(self, observations: Iterable[Observation]) -> None:
        for observation in observations:
            yield_to_agent()
            self._feed(
                *snapshot(
                    observation,
                    self._config.field_max_bytes,
                    reasoning=self._config.capture_reasoning,
                )
            )
            if self._is_past_cutoff():
                return

    def _feed(self, observation: Observation, weight: int) -> None:
        self._feeding = observation.run_id
        try:
            cases = self._assembler.feed(measured(observation), time.time_ns(), weight=weight)
        finally:
            self._feeding = None
        self._emit_all(cases)

    def _emit_all(self, cases: Sequence[CaseData]) -> None:
        self._unemitted = len(cases)
        for case in cases:
            self._unemitted -= 1
            self._emit(case)

    def _emit(self, case: CaseData) -> None:
        turn = case["actualConversation"][0]
        key = (case["evalId"], turn["invocationId"])
        if key in self._dropped_turns:
            return
        trace_id = turn.get("telemetry", {}).get("traceId")
        if (dropped := self._events.lost_traces.get(trace_id)) is not None:
            # The first turn of the trace was counted when its span was dropped.
            self._drop_turn(key, "queue_full", counted=dropped == 0)
            self._events.lost_traces[trace_id] = dropped + 1
            return
        self.writer.add(case)

    def _drop_run(self, lost: RunLost) -> None:
        """Close a run that lost an event, and drop its turn."""
        end = RunEnded(lost.run_id, lost.time_ns, status="incomplete", close_reason="evicted")
        cases = self._assembler.feed(end, time.time_ns())
        for index, case in enumerate(cases):
            if index == 0:
                turn = case["actualConversation"][0]
                self._drop_turn((case["evalId"], turn["invocationId"]), lost.reason)
            else:
                self._emit(case)

    def _drop_turn(self, key: tuple[str, str], reason: str, *, counted: bool = False) -> None:
        """Count a turn as dropped, once; a later revision would be just as incomplete."""
        if key in self._dropped_turns:
            return
        self._dropped_turns[key] = None
        if len(self._dropped_turns) > MAX_REMEMBERED_DROPS:
            self._dropped_turns.popitem(last=False)
        if not counted:
            self._counters.dropped(reason)

    def _expedite(self, message: Flush) -> None:
        """Write everything queued before the message, then answer it."""
        # Someone waits: skip the quiet period of complete traces.
        self._tick()
        self._tick(FLUSH_AHEAD_NS)
        self.writer.retry_now()
        self._flushes = [flush for flush in self._flushes if flush.deadline > time.monotonic()]
        self._flushes.append(message)

    def _is_past_cutoff(self) -> bool:
        """Return whether it is closing and only time to write what is ready remains.

        Called after each step, which is progress.
        """
        if (closing := self._events.closing) is None:
            return False
        if time.monotonic() > closing.deadline.cutoff:
            return True
        closing.deadline.moved()
        return False

    def _abandon(self, message: Message | None = None) -> None:
        """Count queued and open turns as dropped: there is no time left for them."""
        self._counters.dropped("close_timeout", lambda: self.lose_rest(message))

    def _finish(self, closing: Close) -> bool:
        """Write everything open or buffered by the message's deadline."""
        self._urgent = True
        for source in self._sources:
            try:
                self._feed_all(source.close())
            except BaseException as error:
                # See _handle.
                self._faults.report("source.close", error)
        for case in self._assembler.close_all("shutdown"):
            self._emit(case)
            if self._is_past_cutoff():
                break
        if self._is_past_cutoff():
            self._abandon()
        try:
            complete = self.writer.finish(closing.deadline)
        except BaseException as error:
            # The sink's own close failed; everything was written or counted before.
            self._faults.report("sink.close", error)
            complete = False
        self._faults.log(float("inf"))
        return complete and not self._counters.lost_turns
