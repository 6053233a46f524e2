"""A runner as the judge of all metrics, in place of their judge models."""

import uuid
from collections.abc import Sequence
from dataclasses import replace

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.judge import JudgeReply, JudgeRequest, JudgeUnavailable
from evaltap.evaluator.scoring.scorer import DEFAULT_SERVICES
from evaltap.experiments.mocks.turn_mocks import GeneratorAnswer, GeneratorCall, waited
from evaltap.experiments.service.runners import Runner, generator_of
from evaltap.schemas.files.canonical import dumps
from evaltap.schemas.formats.metric import EvalMetric, JudgeModel


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
