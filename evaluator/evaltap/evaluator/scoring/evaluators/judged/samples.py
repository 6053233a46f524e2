"""The number of samples of a judge, and how many are requested concurrently."""

import os

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.schemas.formats.metric import JudgeModel, LlmJudgeCriterion


def samples_of(model: JudgeModel | None) -> int:
    """Return the number of samples for each turn; raise MetricError if it is below 1."""
    given = model.num_samples if model else None
    if given is not None and given <= 0:
        raise MetricError(f"judgeModel.numSamples is {given}; expected 1 or more")
    return given or 1


def workers_of(criterion: LlmJudgeCriterion) -> int:
    """Return the number of concurrent requests; raise MetricError if it is negative."""
    given = criterion.sample_parallelism
    if given is not None and given < 0:
        raise MetricError(f"sampleParallelism is {given}; expected 0 (one for each CPU) or more")
    return (given or os.cpu_count() or 1) if criterion.sample_parallelism_enabled else 1
