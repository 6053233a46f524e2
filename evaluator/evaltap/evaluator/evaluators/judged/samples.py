"""How often a judge is asked, and how many of its samples at a time."""

import os

from evaltap.evaluator.contract.errors import MetricError
from evaltap.schemas.formats.metric import JudgeModel, LlmJudgeCriterion


def samples_of(model: JudgeModel | None) -> int:
    """Return how often a judge is asked for each turn; raise MetricError for less than once."""
    given = model.num_samples if model else None
    if given is not None and given <= 0:
        raise MetricError(f"judgeModel.numSamples is {given}; expected 1 or more")
    return given or 1


def workers_of(criterion: LlmJudgeCriterion) -> int:
    """Return how many requests may run at a time; raise MetricError for a negative number."""
    given = criterion.sample_parallelism
    if given is not None and given < 0:
        raise MetricError(f"sampleParallelism is {given}; expected 0 (one for each CPU) or more")
    return (given or os.cpu_count() or 1) if criterion.sample_parallelism_enabled else 1
