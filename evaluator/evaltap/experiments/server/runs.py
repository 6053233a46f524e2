"""The runs of a server: waiting for room, running, ended; each with its events, which readers may follow."""

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final, Protocol

from evaltap.experiments.service.callbacks import CallbackCall, Callbacks
from evaltap.experiments.service.evaluator import EvaluationResult
from evaltap.experiments.service.options import Options
from evaltap.schemas.data import CaseData, JsonObject, json_bytes
from evaltap.schemas.errors import EvaltapError
from evaltap.schemas.formats.metric import EvalMetric

MOST_WAITING: Final = 32
_KEPT: Final = 20
"""Runs that have ended and can still be asked for; their results are in the store."""
_TOLD: Final = (EvaltapError, TimeoutError)
_LOG = logging.getLogger("evaltap.serve")


class Evaluating(Protocol):
    """What the server runs: an AgentEvaluator."""

    app_name: str
    options: Options

    async def evaluate_async(
        self,
        eval_set_id: str,
        **options: Any,  # fields of Options
    ) -> EvaluationResult:
        """Run the agent on a set and score it."""
        ...


class BusyError(Exception):
    """Raised when too many runs wait."""


@dataclass(eq=False)
class Run:
    """One evaluation that was asked for."""

    run_id: str
    eval_set_id: str
    num_runs: int
    state: str = "queued"
    """queued, running, succeeded, failed or canceled."""
    asked_at: datetime = field(default_factory=lambda: datetime.now(UTC))
    result: EvaluationResult | None = None
    error: Exception | None = None
    events: list[tuple[str, JsonObject]] = field(default_factory=list)
    """Names and data."""
    task: "asyncio.Task[None] | None" = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at each event, and replaced by a new one."""

    @property
    def has_ended(self) -> bool:
        """Whether nothing more happens."""
        return self.state in ("succeeded", "failed", "canceled")

    def report(self, event: str, data: JsonObject) -> None:
        """Add an event and wake those who follow."""
        self.events.append((event, data))
        self.changed.set()
        self.changed = asyncio.Event()

    def data(self) -> JsonObject:
        ended = {} if self.result is None else {"evaluationResult": self.result.data()}
        return {
            "id": self.run_id,
            "setId": self.eval_set_id,
            "numRuns": self.num_runs,
            "state": self.state,
            "askedAt": self.asked_at.isoformat(),
            "events": len(self.events),
            **({} if self.error is None else {"error": told(self.error)}),
            **ended,
        }

    async def ended(self) -> None:
        """Wait until the run has ended."""
        while not self.has_ended:
            await self.changed.wait()

    def cancel(self) -> None:
        """Stop the run, if it has not ended; the runs of its set that have ended are saved."""
        if self.task is not None:
            self.task.cancel()

    async def stream(self, after: int, idle_seconds: float = 15.0) -> AsyncIterator[str]:
        """Yield the events beyond a number as server-sent events, until the run has ended."""
        sent = max(0, after)
        while True:
            for number, (event, data) in enumerate(self.events[sent:], sent + 1):
                yield f"id: {number}\nevent: {event}\ndata: {json_bytes(data).decode()}\n\n"
                sent = number
            if sent < len(self.events):
                continue  # more came while these were read
            if self.has_ended:
                return
            try:
                async with asyncio.timeout(idle_seconds):
                    await self.changed.wait()
            except TimeoutError:
                yield ": still running\n\n"


class Runs:
    """Starts runs, at most `at_once` at a time, each for `run_seconds`; used on one event loop."""

    def __init__(
        self,
        evaluator: Evaluating,
        at_once: int,
        check_metrics: Callable[[Sequence[EvalMetric]], None],
        run_seconds: float | None = None,
    ) -> None:
        self._evaluator = evaluator
        self._check_metrics = check_metrics
        self._at_once, self._run_seconds = at_once, run_seconds
        self._room: asyncio.Semaphore | None = None
        self._all: OrderedDict[str, Run] = OrderedDict()

    def get(self, run_id: str) -> Run | None:
        """Return a run that is going on, or ended not long ago."""
        return self._all.get(run_id)

    def start(self, eval_set_id: str, **options: Any) -> Run:  # fields of Options
        """Start a run as soon as there is room; raise BusyError if too many wait."""
        if sum(not one.has_ended for one in self._all.values()) >= self._at_once + MOST_WAITING:
            raise BusyError
        if self._room is None:  # it belongs to the loop on which it is first used
            self._room = asyncio.Semaphore(self._at_once)
        wanted = options.get("num_runs", self._evaluator.options.num_runs)
        run = Run(str(uuid.uuid4()), eval_set_id, wanted)
        self._all[run.run_id] = run
        for old in [one for one in self._all.values() if one.has_ended][:-_KEPT]:
            del self._all[old.run_id]
        run.task = asyncio.create_task(self._run(run, self._room, options))
        # One that is cancelled before it begins never runs.
        run.task.add_done_callback(lambda _: run.has_ended or self._end(run, "canceled"))
        return run

    def cancel(self) -> None:
        for run in self._all.values():
            run.cancel()

    async def _run(self, run: Run, room: asyncio.Semaphore, options: dict[str, Any]) -> None:
        try:
            async with room, asyncio.timeout(self._run_seconds):
                run.state = "running"
                progress = _Progress(run)
                run.result = await self._evaluator.evaluate_async(
                    run.eval_set_id,
                    callbacks=progress.callbacks(self._evaluator.options.callbacks),
                    on_turn=progress.turn,
                    check_metrics=self._check_metrics,
                    **options,
                )
            self._end(run, "succeeded")
        except asyncio.CancelledError:
            self._end(run, "canceled")
        except Exception as error:  # of a store, a callback of the set, an evaluator
            run.error = error
            level = logging.WARNING if isinstance(error, _TOLD) else logging.ERROR
            why = str(error) or told(error)
            _LOG.log(level, "run of %r failed: %s", run.eval_set_id, why, exc_info=level > 30)
            self._end(run, "failed")

    @staticmethod
    def _end(run: Run, state: str) -> None:
        run.state = state
        data: JsonObject = {"state": state}
        if run.error is not None:
            data["error"] = told(run.error)
        if run.result is not None:
            data |= {
                "overallStatus": run.result.overall_status,
                "evalSetResultId": run.result.eval_set_result.eval_set_result_id,
            }
        run.report("summary", data)


def told(error: Exception) -> str:
    """Return what the asker is told: evaltap's own errors are meant for users, others are only logged."""
    if isinstance(error, TimeoutError):
        return "evaluation timed out"
    return str(error) if isinstance(error, EvaltapError) else "internal server error"


class _Progress:
    """Reports what a run does."""

    def __init__(self, run: Run) -> None:
        self._run = run
        self._units: dict[str, JsonObject] = {}
        """Those that are going on, by session."""

    def callbacks(self, given: Callbacks) -> Callbacks:
        """Return callbacks that also report."""
        both = given.copy()
        both.add("progress", before_inference_case=self._started, after_evaluate_case=self._scored)
        return both

    def turn(self, session_id: str, turn: CaseData) -> None:
        """Report a turn of the agent and its tools."""
        unit = self._units.get(session_id, {"sessionId": session_id})
        for tool in turn.get("tools") or ():
            name, status = tool.get("name") or "", "failed" if tool.get("error") else "ok"
            self._run.report("tool", {**unit, "tool": name, "status": status})
        said = [(turn.get(key) or {}).get("content") for key in ("userContent", "finalResponse")]
        self._run.report("turn", {**unit, "user": said[0], "answer": said[1]})

    def _started(self, call: CallbackCall) -> None:
        unit = {"evalId": call.eval_case_id, "runId": call.request.run_id}
        self._units[call.session_id] = unit | {"sessionId": call.session_id}
        self._run.report("started", self._units[call.session_id])

    def _scored(self, call: CallbackCall) -> None:
        unit = self._units.pop(call.inference.session_id, {"evalId": call.eval_case_id})
        found = call.result
        rows = {one.metric_name: one.eval_status for one in found.overall_eval_metric_results}
        error = {"error": found.error_message} if found.error_message else {}
        self._run.report(
            "scored", {**unit, "status": found.final_eval_status, "metrics": rows, **error}
        )
