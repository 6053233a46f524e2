"""Evaluation: score what inference has brought, case by case."""

import asyncio
import uuid
from collections.abc import Sequence
from dataclasses import replace

from evaltap.evaluator.cases.pairing import UnscorableCaseError, placeholder, with_case_rubrics
from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeReply, JudgeRequest, JudgeUnavailable
from evaltap.evaluator.scoring.evaluate import case_result
from evaltap.evaluator.scoring.results.result_file import FAILED, NOT_EVALUATED
from evaltap.evaluator.scoring.scorer import DEFAULT_SERVICES, CaseScorer
from evaltap.experiments.mocks.turn_mocks import GeneratorAnswer, GeneratorCall, waited
from evaltap.experiments.service.aggregation import Aggregated, aggregated, by_metric_statuses
from evaltap.experiments.service.callbacks import CallbackCall
from evaltap.experiments.service.concurrency import in_order
from evaltap.experiments.service.options import Options
from evaltap.experiments.service.requests import EvaluateRequest, InferenceResult, SetRunResult
from evaltap.experiments.service.runners import Runner, generator_of
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.canonical import dumps
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel
from evaltap.schemas.formats.result import EvalCaseResult, EvalMetricResult, EvalMetricResultDetails


def scorer_of(metrics: Sequence[EvalMetric], options: Options) -> CaseScorer:
    """Return what scores cases; raise UnknownEvaluatorError for an evaluator that is not installed."""
    metrics, services = judged_by(
        options.judge_runner, options.judge_samples, metrics, options.services
    )
    return CaseScorer(
        metrics,
        services=services,
        registry=options.registry,
        unknown_metrics=options.unknown_metrics,
        broken_metrics="fail",
    )


async def evaluate_set(request: EvaluateRequest, options: Options) -> SetRunResult:
    """Score inference results, in their order.

    A case that cannot be scored, or whose callback fails, is a failed case.  Raises ServiceError if a
    callback of the set fails, and UnknownEvaluatorError.
    """
    if not request.app_name or not request.eval_set_id:
        raise InputError("the request has no app name or no eval set id")

    async def evaluate(context: object) -> SetRunResult:
        evaluation = _Evaluation(request, options, context)
        parallel = options.parallelism if options.parallel_evaluation else 1
        results = await in_order(evaluation.case, request.inference_results, parallel)
        return SetRunResult(request.app_name, request.eval_set_id, results)

    return await options.callbacks.around("evaluate", request, evaluate)


class _Evaluation:
    """Scores single cases of a request."""

    def __init__(self, request: EvaluateRequest, options: Options, context: object) -> None:
        self._request, self._options, self._context = request, options, context
        self._scorer = scorer_of(request.metrics, options)
        self._stored: dict[str, EvalCase] | None = None

    async def case(self, inference: InferenceResult) -> EvalCaseResult:
        """Score a case with its callbacks."""

        async def score() -> EvalCaseResult:
            if inference.status != "passed":
                return self._failed(inference, inference.error_message)
            try:
                return await asyncio.to_thread(self._scored, inference)
            except Exception as error:  # of the user's aggregator, too: it fails its case
                return self._failed(inference, str(error) or type(error).__name__)

        def failed(result: EvalCaseResult | None, why: str) -> EvalCaseResult:
            if result is None:
                return self._failed(inference, why)
            changed = {"final_eval_status": FAILED, "score": 0.0, "error_message": why}
            return result.model_copy(update=changed)

        call = CallbackCall("evaluate", self._request, self._context, inference.eval_case_id)
        callbacks = self._options.callbacks
        return await callbacks.around_case(call, score, failed, inference=inference)

    def _failed(self, inference: InferenceResult, why: str) -> EvalCaseResult:
        return EvalCaseResult(
            eval_set_id=self._request.eval_set_id,
            eval_id=inference.eval_case_id,
            final_eval_status=FAILED,
            error_message=why,
            session_id=inference.session_id,
            user_id=inference.user_id,
        )

    def _scored(self, inference: InferenceResult) -> EvalCaseResult:
        case = inference.eval_case or self._of_store(inference.eval_case_id)
        data = _as_recorded(case, inference)
        if not inference.inferences:
            return self._unspoken(case, inference)
        result = case_result(data, self._scorer.score(data), eval_set_id=self._request.eval_set_id)
        changed = {"session_id": inference.session_id}
        return self._aggregated(case, inference, result.model_copy(update=changed))

    def _unspoken(self, case: EvalCase, inference: InferenceResult) -> EvalCaseResult:
        """Return the result of a conversation that ended before its first turn: nothing to evaluate."""
        rows = [
            EvalMetricResult(
                metric_name=one.metric_name,
                eval_status=NOT_EVALUATED,
                threshold=one.threshold or 0.0,
                criterion=one.criterion,
                details=EvalMetricResultDetails(),
            )
            for one in self._metrics(case)
        ]
        result = self._failed(inference, "").model_copy(
            update={"final_eval_status": NOT_EVALUATED, "overall_eval_metric_results": rows}
        )
        return self._aggregated(case, inference, result)

    def _aggregated(
        self, case: EvalCase, inference: InferenceResult, result: EvalCaseResult
    ) -> EvalCaseResult:
        if self._options.aggregator is by_metric_statuses or result.error_message:
            return result
        request = self._request
        given = Aggregated(
            request.app_name,
            request.eval_set_id,
            case,
            inference,
            self._metrics(case),
            result.overall_eval_metric_results,
        )
        score, status = aggregated(self._options.aggregator, given)
        return result.model_copy(update={"score": score, "final_eval_status": status})

    def _metrics(self, case: EvalCase) -> list[EvalMetric]:
        rubrics = [one.model_dump(by_alias=True) for one in case.rubrics]
        try:
            return with_case_rubrics(self._scorer.metrics, rubrics)
        except UnscorableCaseError as error:
            raise InputError(str(error)) from error

    def _of_store(self, eval_id: str) -> EvalCase:
        """Return a case whose inference result came without it."""
        if self._stored is None:
            stored = self._options.stores.sets.get(
                self._request.app_name, self._request.eval_set_id
            )
            self._stored = {one.eval_id: one for one in stored.eval_cases}
        if eval_id not in self._stored:
            raise InputError(f"case {eval_id!r} is no longer in the eval set")
        return self._stored[eval_id]


def _as_recorded(case: EvalCase, inference: InferenceResult) -> CaseData:
    """Return a case with what the agent did as its record, and with what it is compared with."""
    data: CaseData = case.model_dump(by_alias=True)
    actual, written = inference.inferences, data.get("conversation") or []
    if case.session_input is None:
        raise InputError("sessionInput is missing")
    expected = _expected(case, inference, written)
    if len(actual) != len(expected):
        raise InputError(f"the agent had {len(actual)} turns, and {len(expected)} were expected")
    left_out = ("conversationScenario", "expectedRunnerEnabled", "source")
    as_recorded = {key: value for key, value in data.items() if key not in left_out}
    as_recorded |= {"evalMode": "trace", "actualConversation": actual, "conversation": expected}
    if (
        case.eval_mode == "trace"
        and not case.actual_conversation
        and not case.expected_runner_enabled
    ):
        # The format's older form, in which turns and messages may be absent; it has the same placeholders.
        as_recorded |= {"actualConversation": [], "conversation": actual}
    return as_recorded


def _expected(
    case: EvalCase, inference: InferenceResult, written: Sequence[CaseData | None]
) -> Sequence[CaseData | None]:
    """Return the turns that the agent's are compared with, placeholders if there are none."""
    if case.expected_runner_enabled:
        if not inference.expected_inferences:
            raise InputError("the expected runner gave no turns")
        return inference.expected_inferences
    if case.eval_mode == "trace":
        has_reference = bool(written and case.actual_conversation)
    else:
        has_reference = case.conversation_scenario is None
    if has_reference:
        return written
    return [dict(placeholder(one) or {}) for one in inference.inferences]


def judged_by(
    runner: Runner | None, samples: int, metrics: Sequence[EvalMetric], services: Services | None
) -> tuple[Sequence[EvalMetric], Services | None]:
    """Return metrics and services with the runner as the judge, asked `samples` times each."""
    if runner is None:
        return metrics, services
    judge = RunnerJudge(runner)
    services = replace(services or DEFAULT_SERVICES, judge=lambda _: judge)
    return [_with_samples(one, samples) for one in metrics], services


class RunnerJudge:
    """Asks a runner, in a new session for each question; called from the threads that score."""

    def __init__(self, runner: Runner) -> None:
        self._ask = generator_of(runner, lambda: str(uuid.uuid4()))

    def answer(self, request: JudgeRequest) -> JudgeReply:
        """Return the final response, or the structured output if the question asks for it."""
        call = GeneratorCall(request.prompt, "", request.answer_schema, request.answer_name)
        try:
            found: GeneratorAnswer = waited(self._ask(call))
        except Exception as error:  # whatever the user's runner raises
            raise JudgeUnavailable(f"the judge runner failed: {error}") from error
        if request.answer_schema is not None and found.structured is not None:
            return JudgeReply(dumps(found.structured).decode(), model="runner")
        return JudgeReply(found.text, model="runner")


def _with_samples(metric: EvalMetric, samples: int) -> EvalMetric:
    judge = metric.criterion.llm_judge if metric.criterion else None
    if metric.criterion is None or judge is None:
        return metric
    model = (judge.judge_model or JudgeModel()).model_copy(update={"num_samples": samples})
    judge = judge.model_copy(update={"judge_model": model})
    criterion = metric.criterion.model_copy(update={"llm_judge": judge})
    return metric.model_copy(update={"criterion": criterion})
