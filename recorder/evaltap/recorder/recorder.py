"""`Recorder`, the one object that the agent's process holds.

It promises the agent never to raise, block or grow without bound. It promises the evaluator that
every turn that started is counted in exactly one place. See docs/explanation/delivery.md.
"""

import logging
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from threading import Event, Lock, get_ident
from typing import Self

from evaltap.recorder.config import RecorderConfig, configured, with_absolute_log
from evaltap.recorder.delivery import lifecycle
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.delivery.counters import Counters, LiveCounters
from evaltap.recorder.delivery.event_queue import Close, EventQueue, Flush
from evaltap.recorder.delivery.redaction_key import configured_redactor
from evaltap.recorder.delivery.retrying_writer import RetryingWriter
from evaltap.recorder.delivery.sinks.base import Sink
from evaltap.recorder.delivery.sinks.factory import log_sink
from evaltap.recorder.delivery.snapshot import snapshot
from evaltap.recorder.delivery.worker import Worker
from evaltap.recorder.faults import LOG_INTERVAL_SECONDS, Faults
from evaltap.recorder.observation import Observation, RunStarted
from evaltap.recorder.payload import name as named
from evaltap.recorder.payload import number, text
from evaltap.recorder.privacy.pseudonyms import random_key
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.recorder.protocols import ItemSource
from evaltap.recorder.turn_api import Turn
from evaltap.schemas.data import JsonObject
from evaltap.schemas.errors import InputError
from evaltap.schemas.wire.feedback import Feedback

_LOG = logging.getLogger("evaltap.recorder")
MANY_RECORDERS = 10
"""Warn at this many followers of one recorder: the agent probably creates one per request."""
START_RETRY_SECONDS = 0.2
"""Delay before another attempt to start the background thread; events stay queued meanwhile."""


class Recorder:
    """Record an agent's turns to a log, from any thread, without ever disturbing the agent.

    `log` is the path of the local log. Other settings are keyword arguments named after the fields
    of RecorderConfig, or a ready-made `config`. `sink` replaces the log, `redactor` the default
    redactor. Recorders in one process with equal settings share one background thread; closing the
    last one closes the log. Nothing is opened or started before the first event. Leaving a `with`
    block closes the recorder. Raises ConfigurationError for invalid settings.
    """

    def __init__(
        self,
        log: str | Path | None = None,
        *,
        sink: Sink | None = None,
        redactor: Redactor | None = None,
        config: RecorderConfig | None = None,
        **settings: object,  # validated by RecorderConfig
    ) -> None:
        self._closed = self._complete = False
        self._fault_count = 0
        self.config = with_absolute_log(configured(log, config, settings))
        self.faults = Faults()
        self._custom_redactor = redactor
        self._off = self.config.disabled
        self._sink = sink if sink is not None or self._off else log_sink(self.config)
        self._custom_sink = sink is not None
        self._sources: list[ItemSource] = []
        self._forked = False
        self._begin()
        self._followers: set[int] = set()
        self._retired = False
        self._leader = self._leader_of(redactor)
        if not self._off:
            lifecycle.watch(self)

    def _leader_of(self, redactor: Redactor | None) -> "Recorder | None":
        """Return the open recorder with the same settings that does the work for both, if any."""
        if self._off or self._custom_sink or redactor is not None:
            return None
        leader = _LEADERS.setdefault(self.config, self)
        if leader._closed or leader._off:
            _LEADERS[self.config] = leader = self
        if leader is self:
            return None
        leader._followers.add(id(self))
        if len(leader._followers) == MANY_RECORDERS:
            _LOG.warning(
                "%d recorders of %s are open in this process: create one and reuse it",
                MANY_RECORDERS + 1,
                self.config.log,
            )
        return leader

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def turn(
        self,
        *,
        user: str | None = None,
        parts: Sequence[object] = (),
        session_id: str | None = None,
        user_id: str | None = None,
        app_name: str | None = None,
        agent: str | None = None,
        invocation_id: str | None = None,
        state: JsonObject | None = None,
    ) -> Turn:
        """Return a turn of the plain API, for a `with` statement around the agent's work.

        `user` is the user's message; turns of one conversation share a `session_id`. `parts` are
        the message's images, audio and files, as `{"type": "image", "mime_type": "image/png",
        "data": png}` or in a model provider's format. The recorder stores type, size and SHA-256,
        or the URL, never the bytes.
        """
        return Turn(
            self,
            user=user,
            parts=parts,
            session_id=session_id,
            user_id=user_id,
            app_name=app_name,
            agent=agent,
            invocation_id=invocation_id,
            state=state,
        )

    def feedback(
        self,
        session_id: str,
        *,
        turn: str | None = None,
        trace_id: str | None = None,
        positive: bool | None = None,
        score: float | None = None,
        comment: str | None = None,
        correction: str | None = None,
        name: str = "feedback",
        given_by: str | None = None,
        app_name: str | None = None,
        feedback_id: str | None = None,
    ) -> str:
        """Record a user's feedback on a turn, at any time, and return the feedback id.

        Identify the turn by `turn` (its invocation id) or `trace_id`; without either, the feedback
        is about the whole session. `positive` is thumbs up or down, `score` a number on the scale
        of `name`, `correction` what the answer should have been. Repeating a `feedback_id` records
        no second feedback. Never raises or blocks.
        """
        new_id = uuid.uuid4().hex if feedback_id is None or feedback_id == "" else feedback_id
        if self._off:
            return new_id

        def entry(limit: int) -> Feedback:
            return Feedback(
                named(new_id) or new_id,
                named(session_id) or "",
                named(session_id) or "",
                datetime.now(UTC),
                app_name=named(app_name) or "",
                invocation_id=named(turn) or "",
                trace_id=named(trace_id) or "",
                name=named(name) or "",
                positive=positive if isinstance(positive, bool) else None,
                score=number(score),
                comment=text(comment, limit)[0] or "",
                correction=text(correction, limit)[0] or "",
                given_by=named(given_by) or "",
            )

        (self._leader or self)._queue_feedback(entry)
        return new_id

    def _queue_feedback(self, entry_within: Callable[[int], Feedback]) -> None:
        """Queue feedback whose texts are cut to a limit in bytes; count it when that fails."""
        if self._off:
            return
        try:
            entry = entry_within(self.config.field_max_bytes)
            size = len(entry.comment) + len(entry.correction) + 500
            if not self._events.put_feedback(entry, size):
                self._counters.feedback_lost()
        except Exception as error:
            # See observe.
            self.report_fault("feedback", error)
            self._counters.feedback_lost()
        self._ensure_worker()

    def observe(self, observation: Observation) -> None:
        """Queue an observation, from any thread; its content is copied now. Never raises or blocks."""
        if self._off:
            if isinstance(observation, RunStarted) and not self.config.disabled:
                self._counters.refuse(self._off_reason)
            return
        if self._leader is not None:
            self._leader.observe(observation)
            return
        try:
            if self._forked and not self._is_own(observation):
                return
            copied, weight = snapshot(
                observation,
                self.config.field_max_bytes,
                reasoning=self.config.capture_reasoning,
            )
            self._events.observe(copied, weight)
        except Exception as error:
            # The only guard on this path: a fault in the recorder must never reach the agent.
            self.report_fault("observe", error)
            self._drop_run(observation)
        self._ensure_worker()

    def register(self, source: ItemSource) -> None:
        """Register a source of raw items; only the background thread calls its methods."""
        if self._leader is not None:
            self._leader.register(source)
            return
        self._sources.append(source)

    def submit(self, source: ItemSource, item: object) -> bool:
        """Queue a raw item for its source, from any thread; return False when the queue is full."""
        if self._off:
            return False
        if self._leader is not None:
            return self._leader.submit(source, item)
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
        """Count a fault of a source or of the recorder; too many disable the recorder."""
        self.faults.report(where, error)
        self._fault_count += 1
        if self._fault_count >= self.config.max_internal_errors and not self._off:
            self._off_reason = "switched_off"
            self._off = True

    def counters(self) -> Counters:
        """Return a snapshot of where every turn went."""
        if self._leader is not None:
            return self._leader.counters()
        backlog = self._sink.backlog() if self._sink is not None else 0
        recorded, delivered, spooled, dropped = self._counters.snapshot(backlog)
        worker = self._worker
        return Counters(
            recorded=recorded,
            delivered=delivered,
            spooled=spooled,
            dropped=dropped,
            waiting=worker.writer.waiting + worker.writer.held if worker else 0,
            queued_events=len(self._events),
            open_turns=worker.open_turns if worker else 0,
            lost_items=self._lost_items,
            feedback=self._counters.feedback,
            lost_feedback=self._counters.lost_feedback,
            faults=self.faults.total,
        )

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Block until everything observed so far is on the log; return False on timeout.

        Open turns stay open. The default timeout is `close_timeout_seconds`.
        """
        if self._leader is not None:
            return self._leader.flush(timeout_seconds)
        worker = self._worker
        if worker is None or not worker.alive or self._closed:
            return len(self._events) == 0
        timeout = self.config.close_timeout_seconds if timeout_seconds is None else timeout_seconds
        flush = Flush(Event(), time.monotonic() + timeout)
        self._events.control(flush)
        return flush.done.wait(timeout)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Write everything in memory, open turns as incomplete, and stop.

        Takes at most `timeout_seconds` (default: close_timeout_seconds) and waits only for the
        local disk. Returns True when everything is on the log. Later observations are counted as
        dropped. May be called again.
        """
        if self._closed:
            return self._complete
        if self._followers:
            # Other recorders share these settings; the last one to close closes the log.
            self._retired = True
            return self.flush(timeout_seconds)
        self._closed = True
        self._off_reason = "closed"
        self._off = True
        lifecycle.forget(self)
        if self._leader is not None:
            self._complete = self._leave(self._leader, timeout_seconds)
            return self._complete
        timeout = self.config.close_timeout_seconds if timeout_seconds is None else timeout_seconds
        self._complete = self._stop(time.monotonic() + timeout)
        return self._complete

    def _leave(self, leader: "Recorder", timeout_seconds: float | None) -> bool:
        """Flush the leader, or close it if it is retired and this was its last follower."""
        leader._followers.discard(id(self))
        if leader._retired and not leader._followers:
            return leader.close(timeout_seconds)
        return leader.flush(timeout_seconds)

    def _stop(self, deadline: float) -> bool:
        """Let the background thread write everything and exit; return whether all of it is on the log."""
        if self._worker is None and len(self._events):
            self._start_at = 0.0
            self._ensure_worker(closing=True)
        worker = self._worker
        if worker is None:
            self._counters.dropped("close_timeout", self._events.abandon())
            return not self._counters.lost_turns
        self._events.control(Close(deadline))
        if worker.thread.ident == get_ident():
            return worker.complete
        worker.thread.join(max(0.0, deadline - time.monotonic()) + 0.1)
        if worker.thread.is_alive():
            # The log hangs, and the thread with it: count what it holds as lost.
            self._counters.settle(worker.held_turns + self._events.abandon())
        return worker.complete

    def after_fork_in_child(self) -> None:
        """Reset in a forked child: turns, thread and files belong to the parent."""
        self._forked = True
        # Never closed here: finalizing the parent's connection in the child could touch its files.
        lifecycle.keep_forever((self._worker, self._events, self._counters))
        self._begin()

    def fork_lock(self) -> "Lock | None":
        """Return the lock held while the sink works, or None without a running thread."""
        return self._worker.writer.fork_lock if self._worker is not None else None

    def _begin(self) -> None:
        self._counters = LiveCounters()
        self._events = EventQueue(
            max_events=self.config.queue_max_events,
            max_bytes=self.config.queue_max_bytes,
            refuse=self._counters.refuse,
        )
        self._worker: Worker | None = None
        self._starting = Lock()
        self._closed = False
        self._complete = False
        self._off_reason = ""
        self._start_at = self._start_fault_at = 0.0
        self._lost_items = 0
        self._own_runs: dict[str, None] = {}

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
        except Exception as error:
            # Thread limit reached, or the interpreter is shutting down: events wait in the bounded
            # queue. Counts as one fault however many events arrive meanwhile, so it never disables
            # the recorder.
            now = time.monotonic()
            self._start_at = now + START_RETRY_SECONDS
            if now >= self._start_fault_at:
                self._start_fault_at = now + LOG_INTERVAL_SECONDS
                self.faults.report("thread start", error)
        finally:
            self._starting.release()

    def _new_worker(self, sink: Sink) -> Worker:
        writer = RetryingWriter(
            self.config,
            sink,
            CaseProcessor(self.config, self._make_redactor),
            self._counters,
            self.faults,
        )
        return Worker(
            self.config,
            self._events,
            writer,
            self._counters,
            self.faults,
            self._sources,
            metadata.version("evaltap"),
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
            self.report_fault("redaction key", error)
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


_LEADERS: dict[RecorderConfig, Recorder] = {}
"""The recorder that owns the background thread, by settings."""
