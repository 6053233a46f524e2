"""Asking a judge several times: in order, or a few at a time in a small pool of threads."""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from evaltap.evaluator.contract.errors import MetricError
from evaltap.schemas.formats.metric import JudgeModel, LlmJudgeCriterion

Item = TypeVar("Item")
Answer = TypeVar("Answer")


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


def run_all(work: Callable[[Item], Answer], items: Sequence[Item], workers: int) -> list[Answer]:
    """Return the answers in the order of the items, with at most `workers` at work at a time."""
    workers = min(workers, len(items))
    if workers <= 1:
        return [work(item) for item in items]
    with ThreadPoolExecutor(workers, thread_name_prefix="evaltap-judge") as pool:
        return list(pool.map(work, items))
