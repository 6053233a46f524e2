"""The recorder: what an agent's process holds on to.

Promises to the agent: no exception, no waiting, no growth.  Promises to the evaluator: every turn
that was begun ends in exactly one counted place.  See docs/explanation/delivery.md.
"""

import math
import time
import uuid
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from threading import Event, Lock, get_ident
from typing import Any

from evaltap.recorder import lifecycle
from evaltap.recorder.config import RecorderConfig
from evaltap.recorder.errors import Faults
from evaltap.recorder.finishing import Finisher
from evaltap.recorder.inlet import Close, Flush, Inlet
from evaltap.recorder.intake import take
from evaltap.recorder.ledger import Counters, Ledger
from evaltap.recorder.observation import Observation, RunStarted
from evaltap.recorder.outlet import Outlet
from evaltap.recorder.payload import cut
from evaltap.recorder.payload import name as named
from evaltap.recorder.pseudonym import derived_key, key_path, random_key, shared_key
from evaltap.recorder.redaction import PatternRedactor, Redactor
from evaltap.recorder.sinks.base import Sink
from evaltap.recorder.sinks.local_log import LocalLogSink
from evaltap.recorder.turn_api import Turn
from evaltap.recorder.worker import ObservationSource, Worker
from evaltap.schemas.errors import ConfigurationError
from evaltap.schemas.feedback import Feedback
from evaltap.schemas.log_location import CASE, KafkaLocation, parse_log_location


class Recorder:
    """Record turns of agents to a log, from any thread, without ever disturbing the agent.

    `log` is the path of the local log; other settings are keyword arguments named as the fields of
    RecorderConfig, or come ready-made as `config`.  `sink` takes the place of the log.  `redactor`
    takes the place of the one that is on by default.  Nothing is opened or started before the
    first event.  Raises ConfigurationError for settings that cannot work.
    """

    def __init__(
        self,
        log: str | Path | None = None,
        *,
        sink: Sink | None = None,
        redactor: Redactor | None = None,
        config: RecorderConfig | None = None,
        **settings: Any,  # the fields of RecorderConfig, checked by it
    ) -> None:
        self._closed = self._complete = False
        self._troubles = 0
        self.config = _configured(log, config, settings)
        self.faults = Faults()
        self._custom_redactor = redactor
        self._off = self.config.disabled
        self._sink = sink if sink is not None or self._off else log_sink(self.config)
        self._custom_sink = sink is not None
        self._sources: list[ObservationSource] = []
        self._forked = False
        self._begin()
        if not self._off:
            lifecycle.watch(self)

    def turn(
        self,
        *,
        user: str | None = None,
        session_id: str | None = None,
        user_id: str | None = None,
        app_name: str | None = None,
        agent: str | None = None,
        invocation_id: str | None = None,
        state: dict[str, Any] | None = None,
    ) -> Turn:
        """Return a turn of the plain API, to be used in a `with` statement around the agent's work.

        `user` is the user's message; turns of one conversation share the `session_id`.
        """
        return Turn(
            self,
            user=user,
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
        """Record what a user thinks of a turn, at any time; return the id of the feedback.

        The turn is the `turn` (its invocation id), the one of the `trace_id`, or the session as a whole.
        `positive` is thumbs up or down, `score` a number on the scale of `name`, `correction` what the
        answer should have been.  The same `feedback_id` given twice is one feedback.  Never raises or
        waits.
        """
        made = feedback_id or uuid.uuid4().hex
        if self._off:
            return made
        try:
            limit = self.config.field_max_bytes
            given = Feedback(
                named(made) or made,
                named(session_id) or "",
                named(session_id) or "",
                datetime.now(UTC),
                app_name=named(app_name) or "",
                invocation_id=named(turn) or "",
                trace_id=named(trace_id) or "",
                name=named(name) or "",
                positive=positive if isinstance(positive, bool) else None,
                score=float(score) if score is not None and math.isfinite(score) else None,
                comment=cut(str(comment or ""), limit)[0],
                correction=cut(str(correction or ""), limit)[0],
                given_by=named(given_by) or "",
            )
            if not self._inlet.give(given, len(given.comment) + len(given.correction) + 500):
                self._ledger.feedback_lost()
        except Exception as error:
            # See observe.
            self.report_fault("feedback", error)
            self._ledger.feedback_lost()
        self._ensure_worker()
        return made

    def observe(self, observation: Observation) -> None:
        """Take an observation, from any thread; content is copied now.  Never raises or waits."""
        if self._off:
            if isinstance(observation, RunStarted) and not self.config.disabled:
                self._ledger.refuse(self._off_reason)
            return
        try:
            if self._forked and not self._is_own(observation):
                return
            taken, weight = take(observation, self.config.field_max_bytes)
            self._inlet.observe(taken, weight)
        except Exception as error:
            # The one guard of this path: the agent must not see the recorder's troubles.
            self.report_fault("observe", error)
            self._lose(observation)
        self._ensure_worker()

    def register(self, source: ObservationSource) -> None:
        """Add a reader of raw items; its methods are called by the background thread only."""
        self._sources.append(source)

    def submit(self, source: ObservationSource, item: Any) -> bool:
        """Hand a raw item over to its source, from any thread; False when it was not taken."""
        if self._off:
            return False
        try:
            taken = self._inlet.submit(source, item)
            if not taken:
                self._lost_items += 1
            worker = self._worker
            if worker is None or not worker.alive:
                self._ensure_worker()
        except Exception as error:
            # See observe.
            self.report_fault("submit", error)
            return False
        return taken

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count an error of a source or of the recorder; too many switch the recorder off."""
        self.faults.report(where, error)
        self._troubles += 1
        if self._troubles >= self.config.max_internal_errors and not self._off:
            self._off_reason = "switched_off"
            self._off = True

    def counters(self) -> Counters:
        """Return where every turn went up to now."""
        backlog = self._sink.backlog() if self._sink is not None else 0
        recorded, delivered, spooled, dropped = self._ledger.snapshot(backlog)
        worker = self._worker
        return Counters(
            recorded=recorded,
            delivered=delivered,
            spooled=spooled,
            dropped=dropped,
            waiting=worker.outlet.waiting if worker else 0,
            queued_events=len(self._inlet),
            open_turns=worker.open_turns if worker else 0,
            lost_items=self._lost_items,
            feedback=self._ledger.feedback,
            lost_feedback=self._ledger.lost_feedback,
            faults=self.faults.total,
        )

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Wait until all that was observed is on the log; False when the time was not enough.

        Turns that are still open stay open.  The default time is that of closing.
        """
        worker = self._worker
        if worker is None or not worker.alive or self._closed:
            return len(self._inlet) == 0
        timeout = self.config.close_timeout_seconds if timeout_seconds is None else timeout_seconds
        flush = Flush(Event(), time.monotonic() + timeout)
        self._inlet.control(flush)
        return flush.done.wait(timeout)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Write out what is in memory, turns still open as incomplete, and stop.

        Takes no longer than `timeout_seconds` (close_timeout_seconds by default) and waits for the
        local disk only.  True when everything is on the log.  What is observed later is counted as
        dropped.  May be called again.
        """
        if self._closed:
            return self._complete
        self._closed = True
        self._off_reason = "closed"
        self._off = True
        lifecycle.forget(self)
        worker = self._worker
        if worker is None:
            self._complete = True
            return True
        timeout = self.config.close_timeout_seconds if timeout_seconds is None else timeout_seconds
        self._inlet.control(Close(time.monotonic() + timeout))
        if worker.thread.ident != get_ident():
            worker.thread.join(timeout + 0.1)
        self._complete = worker.complete
        return self._complete

    def after_fork_in_child(self) -> None:
        """Start anew in a forked child: the parent's turns, thread and files are the parent's."""
        self._forked = True
        # Never closed here: finalising the parent's connection in the child could touch its files.
        lifecycle.keep_forever((self._worker, self._inlet, self._ledger))
        self._begin()

    def quiet_point(self) -> "Lock | None":
        """Return the lock that is held while the sink works, None when there is no thread."""
        return self._worker.outlet.calm if self._worker is not None else None

    def _begin(self) -> None:
        self._ledger = Ledger()
        self._inlet = Inlet(
            max_events=self.config.queue_max_events,
            max_bytes=self.config.queue_max_bytes,
            refuse=self._ledger.refuse,
        )
        self._worker: Worker | None = None
        self._starting = Lock()
        self._closed = False
        self._complete = False
        self._off_reason = ""
        self._lost_items = 0
        self._own_runs: dict[str, None] = {}

    def _ensure_worker(self) -> None:
        """Start the background thread when there is none or it has died."""
        worker = self._worker
        if (worker is not None and worker.alive) or self._closed or self._sink is None:
            return
        if not self._starting.acquire(blocking=False):
            return
        try:
            if self._worker is worker:
                if worker is not None:
                    self.report_fault("worker died")
                self._worker = self._new_worker(self._sink)
                self._worker.thread.start()
        except Exception as error:
            # No more threads, or the interpreter is going down: the queue is bounded, try later.
            self._worker = worker
            self.report_fault("thread start", error)
        finally:
            self._starting.release()

    def _new_worker(self, sink: Sink) -> Worker:
        outlet = Outlet(
            self.config,
            sink,
            Finisher(self.config, self._make_redactor),
            self._ledger,
            self.faults,
            uuid.uuid4().hex,
        )
        return Worker(
            self.config,
            self._inlet,
            outlet,
            self._ledger,
            self.faults,
            self._sources,
            metadata.version("evaltap"),
        )

    def _make_redactor(self) -> Redactor | None:
        if self._custom_redactor is not None:
            return self._custom_redactor
        if not self.config.redaction:
            return None
        if self.config.redaction_key is not None:
            return PatternRedactor.configured(self.config, derived_key(self.config.redaction_key))
        if self.config.log is None or self._custom_sink:
            return PatternRedactor.configured(self.config, random_key())
        try:
            return PatternRedactor.configured(self.config, shared_key(key_path(self.config.log)))
        except OSError as error:
            # Private all the same, only that other processes will make other pseudonyms.
            self.report_fault("redaction key", error)
            return PatternRedactor.configured(self.config, random_key())

    def _lose(self, observation: Observation) -> None:
        """Drop the run of an observation that could not be taken."""
        try:
            self._inlet.lose(observation.run_id, observation.time_ns, "internal_error")
        except Exception as error:
            # What came in is no observation at all; there is no run to drop.
            self.report_fault("observe", error)

    def _is_own(self, observation: Observation) -> bool:
        """Return whether a run began in this process; the others belong to the parent's recorder."""
        if isinstance(observation, RunStarted):
            if len(self._own_runs) > self.config.open_max_turns:
                self._own_runs.clear()
            self._own_runs[observation.run_id] = None
            return True
        return observation.run_id in self._own_runs


def _configured(
    log: str | Path | None, config: RecorderConfig | None, settings: dict[str, Any]
) -> RecorderConfig:
    if config is not None:
        if log is not None or settings:
            raise ConfigurationError(
                "Recorder was given config= and other settings: put them all into the config"
            )
        return config
    if log is not None:
        settings["log"] = str(log)
    try:
        return RecorderConfig(**settings)
    except TypeError as error:
        known = ", ".join(RecorderConfig.__dataclass_fields__)
        raise ConfigurationError(f"{error}; settings are: {known}") from error


def log_sink(config: RecorderConfig) -> Sink:
    """Return the sink of the configured log; raise ConfigurationError when it cannot be one."""
    if config.log is None:
        raise ConfigurationError(
            "no log was given: pass Recorder('log.db'), or set EVALTAP_LOG, or EVALTAP_DISABLED=1"
        )
    location = parse_log_location(config.log)
    if isinstance(location, KafkaLocation):
        if location.format != CASE:
            raise ConfigurationError(
                f"log {config.log!r}: topics of format {location.format} are only read, by "
                "`evaltap consume`; name a topic of turns to write to"
            )
        if len(location.topics) > 1:
            raise ConfigurationError(
                f"log {config.log!r}: names {len(location.topics)} topics, which only readers take; name "
                "the one to write to"
            )
        from evaltap.recorder.sinks.kafka import KafkaSink

        return KafkaSink(location, max_bytes=config.log_max_bytes)
    path = location
    try:
        usable = path.parent.is_dir() and not path.is_dir()
    except OSError as error:
        raise ConfigurationError(
            f"log {config.log!r} cannot be reached ({error}): name a file in a directory that the "
            "agent may write to"
        ) from error
    if not usable:
        raise ConfigurationError(
            f"log {config.log!r} cannot be a file: name a file in a directory that exists"
        )
    return LocalLogSink(path, max_bytes=config.log_max_bytes)
