"""`AgentEvaluator`: tRPC-Agent-Go's evaluation of an agent on the cases of a set, over several runs."""

import asyncio
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from time import monotonic
from typing import Any, Protocol

from evaltap.evaluator.scoring.results.result_file import summary
from evaltap.experiments.service.concurrency import in_order
from evaltap.experiments.service.evaluation import evaluate_set, scorer_of
from evaltap.experiments.service.inference import infer_set
from evaltap.experiments.service.options import Options
from evaltap.experiments.service.requests import (
    EvaluateRequest,
    InferenceRequest,
    InferenceResult,
    SetRunResult,
)
from evaltap.experiments.service.runners import Runner
from evaltap.experiments.service.runs import CaseOverRuns, RunDetails, cases_over_runs, set_status
from evaltap.schemas.errors import ConfigurationError, InputError
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.result import EvalCaseResult, EvalSetResult
from evaltap.schemas.text import did_you_mean


class Service(Protocol):
    """The two steps of an evaluation; each run of a set calls one after the other."""

    async def inference(self, request: InferenceRequest, options: Options) -> list[InferenceResult]:
        """Run the agent on the requested cases, in the order of the set."""
        ...

    async def evaluate(self, request: EvaluateRequest, options: Options) -> SetRunResult:
        """Score what it did."""
        ...


class LocalService:
    """The service that runs the agent in this process."""

    def __init__(self, runner: Runner) -> None:
        if runner is None:
            raise ConfigurationError("the runner is None; give the agent")
        self._runner = runner

    async def inference(self, request: InferenceRequest, options: Options) -> list[InferenceResult]:
        """Run the agent on the requested cases, in the order of the set."""
        return await infer_set(self._runner, request, options)

    async def evaluate(self, request: EvaluateRequest, options: Options) -> SetRunResult:
        """Score what it did."""
        return await evaluate_set(request, options)


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """What an evaluation has found."""

    app_name: str
    eval_set_id: str
    overall_status: str
    execution_time: timedelta
    eval_cases: Sequence[CaseOverRuns]
    """In the order of the set."""
    eval_set_result: EvalSetResult
    """As it was saved, but for the time stamp."""

    def data(self) -> dict[str, Any]:
        """Return the result as tRPC-Agent-Go's API writes it."""
        return {
            "appName": self.app_name,
            "evalSetId": self.eval_set_id,
            "overallStatus": self.overall_status,
            "executionTime": round(self.execution_time.total_seconds() * 1e9),
            "evalCases": [one.data() for one in self.eval_cases],
            "evalSetResult": self.eval_set_result.model_dump(by_alias=True),
        }


class AgentEvaluator:
    """Evaluates an agent on eval sets.

    `options` are the fields of `Options`; `service` does the two steps in place of `LocalService`.

        stores = file_stores("data")
        evaluator = AgentEvaluator("my-app", agent, stores=stores, num_runs=3)
        evaluator.evaluate("golden").overall_status

    Raises ConfigurationError for options that cannot be used.
    """

    def __init__(
        self,
        app_name: str,
        runner: Runner,
        *,
        service: Service | None = None,
        **options: Any,  # the fields of Options, which checks them
    ) -> None:
        if not app_name:
            raise ConfigurationError("the app name is blank")
        self.app_name = app_name
        self.options = Options(**options)
        self.service: Service = service or LocalService(runner)

    def evaluate(self, eval_set_id: str, **options: Any) -> EvaluationResult:
        """Run the agent on a set, score it, save the result and return it; `options` are for this call.

        The result is saved after each run, so that an evaluation that is killed loses only the run at hand.
        Raises InputError for a set or a case that is not there or occurs twice, UnknownEvaluatorError, and
        ServiceError if a callback of the set fails.
        """
        work = self.evaluate_async(eval_set_id, **options)
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(work)
        work.close()
        raise ConfigurationError("evaluate was called on an event loop; await evaluate_async")

    async def evaluate_async(self, eval_set_id: str, **options: Any) -> EvaluationResult:
        """Do the same on this event loop."""
        if not eval_set_id:
            raise InputError("the eval set id is blank; name a set")
        call = _Call(self, eval_set_id, replace(self.options, **options))
        return await call.run()

    def close(self) -> None:
        """Close the stores; raise what they raise, all together."""
        errors = []
        for store in self.options.stores:
            try:
                store.close()
            except Exception as error:  # the others are closed all the same
                errors.append(error)
        if errors:
            raise ExceptionGroup("stores could not be closed", errors)


class _Call:
    """One evaluation of a set."""

    def __init__(self, evaluator: AgentEvaluator, eval_set_id: str, options: Options) -> None:
        self._app, self._set, self._options = evaluator.app_name, eval_set_id, options
        self._service = evaluator.service
        self._ended: dict[int, list[EvalCaseResult]] = {}
        self._details: defaultdict[str, list[RunDetails]] = defaultdict(list)
        self._saving = asyncio.Lock()
        self._saved: EvalSetResult | None = None

    async def run(self) -> EvaluationResult:
        began, options = monotonic(), self._options
        eval_set = await asyncio.to_thread(options.stores.sets.get, self._app, self._set)
        order = [one.eval_id for one in eval_set.eval_cases]
        if twice := [one for one, times in Counter(order).items() if times > 1]:
            raise InputError(
                f"eval set {self._set!r}: case {twice[0]!r} occurs a second time; keep one"
            )
        for wanted in options.eval_case_ids:
            if wanted not in order:
                hint = did_you_mean(wanted, order) or "check the id"
                raise InputError(f"no case {wanted!r} in eval set {self._set!r}; {hint}")
        metrics = await asyncio.to_thread(self._metrics)
        options.check_metrics(metrics)
        scorer_of(metrics, options)  # a metric that nobody can score is told before the agent runs
        numbers = range(1, options.num_runs + 1)
        at_once = options.num_runs if options.parallel_runs else 1
        await in_order(lambda number: self._run(number, metrics), numbers, at_once)
        saved = self._saved
        assert saved is not None
        cases = cases_over_runs(saved.eval_case_results, order)
        if options.run_details:
            for one in self._details.values():  # runs that happen at once end in any order
                one.sort(key=lambda details: details.run_id)
            cases = [replace(one, run_details=self._details[one.eval_id]) for one in cases]
        return EvaluationResult(
            self._app,
            self._set,
            set_status(cases),
            timedelta(seconds=monotonic() - began),
            cases,
            saved,
        )

    def _metrics(self) -> list[EvalMetric]:
        stored = self._options.stores.metrics
        names = stored.list(self._app, self._set)
        return [stored.get(self._app, self._set, one) for one in names]

    async def _run(self, number: int, metrics: Sequence[EvalMetric]) -> None:
        asked = InferenceRequest(self._app, self._set, [*self._options.eval_case_ids], number)
        inferences = await self._service.inference(asked, self._options)
        for one in inferences:
            self._details[one.eval_case_id].append(RunDetails(number, _details(one)))
        request = EvaluateRequest(self._app, self._set, inferences, metrics, number)
        run = await self._service.evaluate(request, self._options)
        self._ended[number] = run.eval_case_results
        async with self._saving:
            self._saved = await asyncio.to_thread(self._save, dict(self._ended))

    def _save(self, ended: dict[int, list[EvalCaseResult]]) -> EvalSetResult:
        """Save the runs that have ended, numbered without gaps."""
        results = [
            one.model_copy(update={"run_id": number})
            for number, run in enumerate(sorted(ended), 1)
            for one in ended[run]
        ]
        result = EvalSetResult(
            eval_set_result_id=self._saved.eval_set_result_id if self._saved else "",
            eval_set_id=self._set,
            eval_case_results=results,
            summary=summary(results, len(ended)),
        )
        result_id = self._options.stores.results.save(self._app, result)
        return result.model_copy(
            update={"eval_set_result_id": result_id, "eval_set_result_name": result_id}
        )


def _details(inference: InferenceResult) -> dict[str, Any]:
    return {
        "sessionId": inference.session_id,
        "userId": inference.user_id,
        "status": inference.status,
        "errorMessage": inference.error_message,
        "inferences": [*inference.inferences],
        "executionTraces": [*inference.execution_traces] if any(inference.execution_traces) else [],
        "endedBy": inference.ended_by,
    }
