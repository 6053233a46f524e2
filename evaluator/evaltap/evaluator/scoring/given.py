"""Metrics as users have them in Python: a file, or a list of names, functions, evaluators and metrics."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, TypeAlias

from evaltap.evaluator.scoring.contract.context import Services
from evaltap.evaluator.scoring.contract.evaluator import Evaluator, Registry
from evaltap.evaluator.scoring.evaluators.function import Func, TurnFunction
from evaltap.evaluator.scoring.scorer import CaseScorer
from evaltap.schemas.data import Json
from evaltap.schemas.errors import InputError
from evaltap.schemas.files.documents import metrics_of, read_metrics
from evaltap.schemas.formats.metric import EvalMetric

Metric: TypeAlias = EvalMetric | Mapping[str, Json] | str | Evaluator | TurnFunction
Metrics: TypeAlias = str | Path | Sequence[Metric]
_PASSES: Final = 1.0


def scorer_of(metrics: Metrics, services: Services | None = None) -> CaseScorer:
    """Return the scorer of a metrics file, or of a list; raises InputError as `read_given` does."""
    found, registry = read_given(metrics)
    return CaseScorer(found, services=services, registry=registry)


def read_given(metrics: Metrics) -> tuple[list[EvalMetric], Registry | None]:
    """Return the metrics of a file or of a list, and the evaluators if some are the caller's own.

    In a list, the name of an evaluator alone is its metric with the threshold 1; a function is called with
    the actual and the expected turn, as `Func` describes.  Raises InputError for an invalid file or metric.
    """
    if isinstance(metrics, str | Path):
        return read_metrics(Path(metrics)), None
    if not isinstance(metrics, Sequence) or not metrics:
        found = "an empty list" if isinstance(metrics, Sequence) else type(metrics).__name__
        raise InputError(
            f"metrics: found {found}; expected a file, or a list of names, metrics and functions"
        )
    plain: list[EvalMetric | Json] = []
    evaluators: list[Evaluator] = []
    for one in metrics:
        if isinstance(one, str):
            plain.append({"metricName": one, "threshold": _PASSES})
        elif isinstance(one, EvalMetric):
            plain.append(one)
        elif isinstance(one, Mapping):
            plain.append(dict(one))
        else:
            made = Func(one) if callable(one) else one
            if not isinstance(getattr(made, "name", None), str):
                found = type(one).__name__
                raise InputError(f"metrics: found {found}; expected names, metrics or functions")
            evaluators.append(made)
            threshold = getattr(made, "threshold", _PASSES)
            plain.append({"metricName": made.name, "threshold": threshold})
    return metrics_of(plain), Registry().extended(evaluators) if evaluators else None
