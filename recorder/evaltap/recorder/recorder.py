"""`Recorder`, the one object that the agent's process holds.

It promises the agent never to raise, block or grow without bound. It promises the evaluator that
every turn that started is counted in exactly one place. See docs/explanation/delivery.md.
"""

import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Self

from evaltap.recorder.config import RecorderConfig, configured, with_absolute_log
from evaltap.recorder.copying import name as named
from evaltap.recorder.copying import number, text, truth
from evaltap.recorder.delivery.case_ids import CaseIds, IdResolver
from evaltap.recorder.delivery.counters import Counters
from evaltap.recorder.delivery.pipeline import pipeline_for
from evaltap.recorder.delivery.sinks.base import Sink
from evaltap.recorder.observation import Observation, RunLabels
from evaltap.recorder.privacy.redactor import Redactor
from evaltap.recorder.protocols import ItemSource
from evaltap.recorder.run import LABELS
from evaltap.recorder.turn_api import Turn
from evaltap.schemas.data import JsonObject
from evaltap.schemas.wire.feedback import Feedback


class Recorder:
    """Record an agent's turns to a log, from any thread, without ever disturbing the agent.

    `log` is the path of the local log. Other settings are keyword arguments named after the fields
    of RecorderConfig, or a ready-made `config`. `sink` replaces the log, `redactor` the default
    redactor. `eval_set_id` and `eval_id` return the ids of set and case of a run, given its
    `RunFacts`; without `eval_id`, the session id is the id of the case. Recorders in one process
    with equal settings share one background thread; closing the last one closes the log. Nothing is
    opened or started before the first event. Leaving a `with` block closes the recorder. Raises
    ConfigurationError for invalid settings.

    >>> from evaltap.recorder import MemorySink
    >>> sink = MemorySink()
    >>> def answer(recorder, question):
    ...     with recorder.turn(session_id="s-1", user=question) as turn:
    ...         turn.tool("get_order", {"id": "A-100"}, result={"status": "shipped"})
    ...         turn.respond("It is on its way.")
    >>> with Recorder(sink=sink) as recorder:
    ...     answer(recorder, "Where is order A-100?")
    >>> sink.cases[0]["evalId"]
    's-1'
    """

    def __init__(
        self,
        log: str | Path | None = None,
        *,
        sink: Sink | None = None,
        redactor: Redactor | None = None,
        config: RecorderConfig | None = None,
        eval_set_id: IdResolver | None = None,
        eval_id: IdResolver | None = None,
        **settings: object,  # validated by RecorderConfig
    ) -> None:
        self.config = with_absolute_log(configured(log, config, settings))
        ids = CaseIds(eval_set_id, eval_id) if eval_set_id or eval_id else None
        self._pipeline = pipeline_for(self.config, sink, redactor, ids)
        self._pipeline.join(id(self))
        self._closed = self._complete = False

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

    @contextmanager
    def run_labels(
        self,
        *,
        run: str | None = None,
        trial: int | None = None,
        attempt: int | None = None,
        eval_set_id: str | None = None,
        eval_id: str | None = None,
        app_name: str | None = None,
    ) -> Iterator[None]:
        """Label the runs that start within the block, in this thread or task and those it starts.

        The record has these ids of set and case and this application, whatever session the framework
        uses, and `run` takes the place of the setting of that name. A turn with a `trial` was run for
        an experiment and is never sampled. Plugins, `turn` and `tool` follow; spans of OpenTelemetry do not.
        """
        before = LABELS.set(
            RunLabels(
                named(run), trial, attempt, named(eval_set_id), named(eval_id), named(app_name)
            )
        )
        try:
            yield
        finally:
            LABELS.reset(before)

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
        no second feedback. Never raises or blocks: feedback without a session id is counted as
        lost, a value of another type is left out, and the log says so.
        """
        new_id = named(feedback_id) or uuid.uuid4().hex
        if self._closed:
            return new_id

        def feedback_within(limit: int) -> Feedback:
            thumb, rating = truth(positive), number(score)
            if thumb is None and positive is not None:
                self._pipeline.misused("feedback: positive is neither true nor false")
            if rating is None and score is not None:
                self._pipeline.misused("feedback: score is not a number")
            return Feedback(
                new_id,
                named(session_id) or "",
                named(session_id) or "",
                datetime.now(UTC),
                app_name=named(app_name) or "",
                invocation_id=named(turn) or "",
                trace_id=named(trace_id) or "",
                name=named(name) or "",
                positive=thumb,
                score=rating,
                comment=text(comment, limit)[0] or "",
                correction=text(correction, limit)[0] or "",
                given_by=named(given_by) or "",
            )

        self._pipeline.put_feedback(feedback_within)
        return new_id

    def observe(self, observation: Observation) -> None:
        """Queue an observation, from any thread; its content is copied now. Never raises or blocks."""
        if self._closed:
            self._pipeline.refuse(observation, "closed")
        else:
            self._pipeline.observe(observation)

    def register(self, source: ItemSource) -> None:
        """Register a source of raw items; only the background thread calls its methods."""
        self._pipeline.register(source)

    def submit(self, source: ItemSource, item: object) -> bool:
        """Queue a raw item for its source, from any thread; return False when the queue is full."""
        return not self._closed and self._pipeline.submit(source, item)

    def report_fault(self, where: str, error: BaseException | None = None) -> None:
        """Count a fault of a source; too many switch off all recorders of the log in this process."""
        self._pipeline.report_fault(where, error)

    def counters(self) -> Counters:
        """Return a snapshot of where every turn went."""
        return self._pipeline.counters()

    def flush(self, timeout_seconds: float | None = None) -> bool:
        """Block until everything observed so far is on the log; return False on timeout.

        Open turns stay open. The default timeout is `close_timeout_seconds`.
        """
        return self._pipeline.flush(timeout_seconds)

    def close(self, timeout_seconds: float | None = None) -> bool:
        """Write everything in memory, open turns as incomplete, and stop.

        Takes at most `timeout_seconds`; by default `close_timeout_seconds` without progress, and five
        times as long in all. Waits only for the local disk. Returns True when everything is on the log.
        Later observations are counted as dropped. May be called again.
        """
        if not self._closed:
            self._closed = True
            self._complete = self._pipeline.leave(id(self), timeout_seconds)
        return self._complete
