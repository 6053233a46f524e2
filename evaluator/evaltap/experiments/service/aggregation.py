"""From the metrics of a case to its score and status."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from evaltap.evaluator.scoring.contract import aggregation
from evaltap.evaluator.scoring.results.result_file import (
    FAILED,
    NOT_EVALUATED,
    PASSED,
    overall_status,
)
from evaltap.experiments.service.requests import InferenceResult
from evaltap.schemas.errors import InputError
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.formats.result import EvalMetricResult


@dataclass(frozen=True, slots=True)
class Aggregated:
    """The metrics of one case in one run."""

    app_name: str
    eval_set_id: str
    eval_case: EvalCase
    inference: InferenceResult
    metrics: Sequence[EvalMetric]
    """Those that have a row, including the rubrics that the case adds."""
    metric_results: Sequence[EvalMetricResult]


Aggregator: TypeAlias = Callable[[Aggregated], tuple[float, str]]
"""Returns a case's score, which must be finite, and `passed`, `failed` or `not_evaluated`; anything else, and
an exception, fails the case.  Called once for each scored case of each run, possibly from several threads.
"""


def by_metric_statuses(given: Aggregated) -> tuple[float, str]:
    """Return 1 for a passed case, otherwise 0: failed over passed over not evaluated."""
    status = overall_status(one.eval_status for one in given.metric_results)
    return (1.0 if status == PASSED else 0.0), status


def weighted_mean(weights: Mapping[str, float], threshold: float) -> Aggregator:
    """Return an aggregator: the mean of the evaluated metrics, by weight (1 if not named).

    Raises InputError for a weight below 0 or not finite.
    """
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise InputError(f"the weight of {name} is {weight}; expected 0 or more")

    def aggregate(given: Aggregated) -> tuple[float, str]:
        rows = [one for one in given.metric_results if one.eval_status != NOT_EVALUATED]
        parts = [weights.get(one.metric_name, 1.0) for one in rows]
        if not any(parts):
            return 0.0, NOT_EVALUATED
        score = aggregation.weighted_mean([one.score or 0.0 for one in rows], parts)
        return score, PASSED if score >= threshold else FAILED

    return aggregate


def aggregated(aggregator: Aggregator, given: Aggregated) -> tuple[float, str]:
    """Return what an aggregator makes of a case; raise InputError for what no case can have."""
    score, status = aggregator(given)
    if status not in (PASSED, FAILED, NOT_EVALUATED):
        raise InputError(
            f"the aggregator returned status {status!r}; expected passed, failed or not_evaluated"
        )
    if not isinstance(score, int | float) or not math.isfinite(score):
        raise InputError(f"the aggregator returned score {score!r}; expected a finite number")
    return float(score), status
