"""The way from the agent's threads to the log: a bounded queue, the background thread, the counters.

Recorders of one process with equal settings share a pipeline; the last one to close closes it.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import replace
from threading import TIMEOUT_MAX, Lock

from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.copying import number
from evaltap.recorder.delivery import lifecycle
from evaltap.recorder.delivery.case_ids import CaseIds
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.delivery.counters import Counters, LiveCounters
from evaltap.recorder.delivery.event_queue import PATIENT_CLOSES, Close, Deadline, EventQueue, Flush
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.recorder.delivery.retrying_writer import RetryingWriter
from evaltap.recorder.delivery.sinks.base import Sink
from evaltap.recorder.delivery.sinks.factory import log_sink
from evaltap.recorder.delivery.worker import Worker
from evaltap.recorder.faults import LOG_INTERVAL_SECONDS, Faults
from evaltap.recorder.observation import Observation, RunStarted, snapshot
from evaltap.recorder.privacy.pseudonyms import random_key
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.recorder.protocols import ItemSource
from evaltap.recorder.threads import Signal, allocate_lock, wait_until
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted
from evaltap.schemas.wire.feedback import Feedback

_LOG = logging.getLogger("evaltap.recorder")
MANY_RECORDERS = 10
"""Warn when more recorders than this share a pipeline: the agent probably creates one per request."""
_LONGEST_WAIT = TIMEOUT_MAX / 2
_SECONDS_TO_STATE = 0.5
"""How long the thread has, when the time to close is up, to count what is lost and state it on the log."""
START_RETRY_SECONDS = 0.2
"""Delay before another attempt to start the background thread; events stay queued meanwhile."""


def pipeline_for(
    config: RecorderConfig,
    sink: Sink | None = None,
    redactor: Redactor | None = None,
    ids: CaseIds | None = None,
) -> "Pipeline":
    """Return the open pipeline with these settings, or a new one; a sink, redactor or ids are not shared."""
    if config.disabled or sink is not None or redactor is not None or ids is not None:
        return Pipeline(config, sink, redactor, ids)
    pipeline = _SHARED.get(config)
    if pipeline is None:  # two threads may get here
        pipeline = _SHARED.setdefault(config, Pipeline(config))
    if pipeline.off:
        pipeline = _SHARED[config] = Pipeline(config)
    return pipeline


class Pipeline:
    """Queues observations, and owns the background thread that writes them to the log.

    `sink` replaces the log of `config`, `redactor` its redactor.  Nothing is opened or started before the
    first event.  `observe`, `submit` and `put_feedback` may be called from any thread; they never raise or
    block.
    """

    def __init__(
        self,
        config: RecorderConfig,
        sink: Sink | None = None,
        redactor: Redactor | None = None,
        ids: CaseIds | None = None,
    ) -> None:
        self.config = config
        self.off = config.disabled
        """Whether it accepts nothing: disabled, closed, or switched off after too many faults."""
        self._off_reason = ""
        self._faults = Faults()
        self._fault_count = 0
        self._closed = self._stopped = self._complete = False
        self._custom_redactor = redactor
        self._ids = ids
        self._custom_sink = sink is not None
        self._sink = sink if sink is not None or self.off else log_sink(config)
        self._sources: list[ItemSource] = []
        self._users: set[int] = set()
        self._forked = False
        self._reset()

    def join(self, user: int) -> None:
        """Add a recorder; the pipeline is open until its last recorder leaves."""
        if self.off:
            return
        lifecycle.watch(self)
        self._users.add(user)
        if len(self._users) == MANY_RECORDERS + 1:
            _LOG.warning(
                "%d recorders of %s are open in this process: create one and reuse it",
                len(self._users),
                self.config.log,
            )

    def leave(self, user: int, timeout_seconds: float | None) -> bool:
        """Remove a recorder: close after the last one, flush otherwise; return whether all is on the log."""
        self._users.discard(user)
        return self.flush(timeout_seconds) if self._users else self.close(timeout_seconds)

    def put_feedback(self, feedback_within: Callable[[int], Feedback]) -> None:
        """Queue feedback whose texts are cut to a limit in bytes; count it when that fails."""
        if self.off:
            return
        try:
            feedback = feedback_within(self.config.field_max_bytes)
            size = len(feedback.comment) + len(feedback.correction) + 500
            if not feedback.eval_id:
                self.misused("feedback: no session id")
                self._counters.feedback_lost()
            elif not self._events.put_feedback(feedback, size):
                self._counters.feedback_lost()
        except Exception as error:
            # See observe.
            self.report_fault("feedback", error)
            self._counters.feedback_lost()
        self._ensure_worker()

    def observe(self, observation: Observation) -> None:
        """Queue an observation; its content is copied now."""
        if self.off:
            self.refuse(observation, self._off_reason)
            return
        try:
            if self._forked and not self._is_own(observation):
                return
            copied, weight = snapshot(
                observation, self.config.field_max_bytes, reasoning=self.config.capture_reasoning
            )
            self._events.observe(copied, weight)
        except Exception as error:
            # The only guard on this path: a fault in the recorder must never reach the agent.
            self.report_fault("observe", error)
            self._drop_run(observation)
        self._ensure_worker()

    def refuse(self, observation: Observation, reason: str) -> None:
        """Count the turn of an observation that comes too late; a disabled pipeline counts nothing."""
        if isinstance(observation, RunStarted) and not self.config.disabled:
            self._counters.refuse(reason)

    def register(self, source: ItemSource) -> None:
        """Add a source of raw items; only the background thread calls its methods."""
        self._sources.append(source)

    def submit(self, source: ItemSource, item: object) -> bool:
        """Queue a raw item for its source; return False when the queue is full."""
        if self.off:
            return False
        try:
            accepted = self._events.submit(source, item)
            if not accepted:
                self._lost_items += 1
            worker = self._worker
            if worker is None or not worker.alive:
                self._ensure_worker()
        except Exception as error:
            # See observe.
            self.report_fault("submit", error)
            return False
        return accepted

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault of a source or of the recorder; too many switch the pipeline off."""
        self._faults.report(where, error)
        self._fault_count += 1
        if self._fault_count >= self.config.max_internal_errors and not self.off:
            self._switch_off("switched_off")

    def misused(self, what: str) -> None:
        """Log a mistake of the caller, which never switches the pipeline off."""
        self._faults.note(what)

    def counters(self) -> Counters:
        """Return a snapshot of where every turn went."""
        backlog = self._sink.backlog() if self._sink is not None else 0
        recorded, delivered, spooled, dropped = self._counters.snapshot(backlog)
        worker = self._worker
        return Counters(
            recorded=recorded,
            delivered=delivered,
            spooled=spooled,
            dropped=dropped,
            waiting=worker.writer.unwritten if worker else 0,
            queued_events=len(self._events),
            open_turns=worker.open_turns if worker else 0,
            lost_items=self._lost_items,
            feedback=self._counters.feedback,
            lost_feedback=self._counters.lost_feedback,
            faults=self._faults.total,
        )

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Block until everything observed so far is on the log; return False on timeout."""
        if len(self._events) and not self._closed:
            self._start_at = 0.0
            self._ensure_worker()
        worker = self._worker
        if worker is None or not worker.alive or self._closed:
            return len(self._events) == 0
        seconds = self._seconds(timeout_seconds)
        if seconds is None:
            seconds = self.config.close_timeout_seconds
        flush = Flush(Signal(), time.monotonic() + seconds)
        self._events.control(flush)
        return wait_until(flush.done.is_set, lambda: flush.deadline)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Write everything in memory within the timeout, and stop; return whether all is on the log.

        By default the timeout is `close_timeout_seconds` without progress, and five times as long in all.
        """
        # Also while it is being closed: a SIGTERM may have interrupted that, and ends the process.
        if not self._stopped:
            self._closed = True
            self._switch_off("closed")
            given = self._seconds(timeout_seconds)
            seconds = self.config.close_timeout_seconds if given is None else given
            at_most = seconds * PATIENT_CLOSES if given is None else seconds
            self._complete = self._stop(Deadline(seconds, at_most))
            self._stopped = True
            lifecycle.forget(self)
        return self._complete

    def after_fork_in_child(self) -> None:
        """Reset in a forked child: turns, thread and files belong to the parent."""
        self._forked = True
        # Never closed here: finalizing the parent's connection in the child could touch its files.
        lifecycle.keep_forever((self._worker, self._events, self._counters))
        self._reset()

    def fork_lock(self) -> "Lock | None":
        """Return the lock held while the sink works, or None without a running thread."""
        return self._worker.writer.fork_lock if self._worker is not None else None

    def warn_of_late_turns(self) -> None:
        """Log how many turns were recorded after `close`, which only the counters show otherwise.

        Not when they are recorded: that would make the agent wait for its log.
        """
        if late := self._counters.drops().get("closed"):
            _LOG.warning(
                "lost %s that came after the recorder of %s was closed: close it last",
                counted(late, "turn"),
                self.config.log,
            )

    def _reset(self) -> None:
        """Start without events, thread and counts."""
        self._counters = LiveCounters()
        self._events = EventQueue(
            max_events=self.config.queue_max_events,
            max_bytes=self.config.queue_max_bytes,
            refuse=self._counters.refuse,
        )
        self._worker: Worker | None = None
        self._starting = allocate_lock()
        self._start_at = self._start_fault_at = 0.0
        self._lost_items = 0
        self._own_runs: dict[str, None] = {}

    def _switch_off(self, reason: str) -> None:
        self._off_reason = reason
        self.off = True

    def _seconds(self, timeout_seconds: float | None) -> float | None:
        """Return a timeout that can be waited for; None for anything that is no number."""
        exact = type(timeout_seconds) is float  # may be infinite, which `number` rejects
        timeout = timeout_seconds if exact else number(timeout_seconds)
        return None if timeout is None else min(max(0.0, timeout), _LONGEST_WAIT)

    def _stop(self, deadline: Deadline) -> bool:
        """Let the background thread write everything and exit; return whether all of it is on the log."""
        if self._worker is None and len(self._events):
            self._start_at = 0.0
            self._ensure_worker(closing=True)
        worker = self._worker
        if worker is None:
            self._counters.dropped("close_timeout", self._events.abandon(self._sources))
            return not self._counters.lost_turns
        self._events.control(Close(deadline))
        if worker.thread.is_current:
            return worker.complete
        if not wait_until(lambda: worker.thread.ended, lambda: deadline.at + _SECONDS_TO_STATE):
            # The log hangs, and the thread with it: count what it holds as lost.
            self._counters.settle(lambda: worker.unwritten_turns + worker.lose_rest())
        return worker.complete

    def _ensure_worker(self, *, closing: bool = False) -> None:
        """Start the background thread if there is none or it died."""
        worker = self._worker
        if (worker is not None and worker.alive) or self._sink is None:
            return
        if (self._closed and not closing) or time.monotonic() < self._start_at:
            return
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._worker is worker:
                if worker is not None:
                    self.report_fault("worker died")
                started = self._new_worker(self._sink)
                started.thread.start()
                self._worker = started
                lifecycle.close_at_end_of_child()
        except Exception as error:
            # Thread limit reached, or the interpreter is shutting down: events wait in the bounded
            # queue. Counts as one fault however many events arrive meanwhile, so it never switches
            # the pipeline off.
            now = time.monotonic()
            self._start_at = now + START_RETRY_SECONDS
            if now >= self._start_fault_at:
                self._start_fault_at = now + LOG_INTERVAL_SECONDS
                self._faults.report("thread start", error)
        finally:
            self._starting.release()

    def _new_worker(self, sink: Sink) -> Worker:
        writer = RetryingWriter(
            self.config,
            sink,
            CaseProcessor(self.config, self._make_redactor, self._ids),
            self._counters,
            self._faults,
        )
        return Worker(
            self.config, self._events, writer, self._counters, self._faults, self._sources
        )

    def _make_redactor(self) -> Redactor | None:
        if self._custom_redactor is not None:
            return self._custom_redactor
        try:
            # A custom sink has no file to store a key next to.
            own = replace(self.config, log=None) if self._custom_sink else self.config
            return configured_redactor(own)
        except InputError as error:
            # Still redacted, but pseudonyms differ from those of other processes.
            self.report_fault(f"redaction: {error}")
            return self.config.redactor(random_key())

    def _drop_run(self, observation: Observation) -> None:
        """Drop the run of an observation that could not be queued."""
        try:
            self._events.lose(observation.run_id, observation.time_ns, "internal_error")
        except Exception as error:
            # Not an observation at all, so there is no run to drop.
            self.report_fault("observe", error)

    def _is_own(self, observation: Observation) -> bool:
        """Return whether a run started in this process; other runs belong to the parent's recorder."""
        if isinstance(observation, RunStarted):
            if len(self._own_runs) > self.config.open_max_turns:
                self._own_runs.clear()
            self._own_runs[observation.run_id] = None
            return True
        return observation.run_id in self._own_runs


_SHARED: dict[RecorderConfig, Pipeline] = {}
"""The shared pipelines by their settings."""
