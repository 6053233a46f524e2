"""Evaluators by name: what is installed, and how a metric finds the one that scores it.

An evaluator is anything with the members of `Evaluator`.  A package offers one by an entry point in
the group `evaltap.evaluators`: the name of the metric, and a factory that takes the metric.
Nothing is imported before a metric asks for it.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final, Protocol, TypeVar, cast, runtime_checkable

from pydantic import BaseModel

from evaltap.evaluator.context import EvaluationContext, EvaluatorFailure, MetricScore
from evaltap.evaluator.errors import MetricError, UnknownEvaluatorError
from evaltap.schemas.metric import EvalMetric

Part = TypeVar("Part")

GROUP: Final = "evaltap.evaluators"


@runtime_checkable
class Evaluator(Protocol):
    """Scores cases under one metric.

    The factory is called once for each metric; it checks the criterion, compiles it and raises
    `MetricError` when it cannot be used.  `evaluate` is called once for each case, possibly from
    several threads at a time, and must not change its context.  What goes wrong with a case is
    returned as `EvaluatorFailure`; an exception is taken for a fault of the evaluator and recorded
    as a failure of this metric for this case.
    """

    @property
    def name(self) -> str:
        """The name under which the evaluator is registered."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same case could get another score; old ones then count as stale."""
        ...

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return one row for each turn and the score of the case, or why there is none."""
        ...


EvaluatorFactory = Callable[[EvalMetric], Evaluator]


class Registry:
    """The evaluators that metrics may name: installed ones and those given here, which go first."""

    def __init__(self, factories: Mapping[str, EvaluatorFactory] | None = None) -> None:
        self._given = dict(factories or {})

    def extended(self, evaluators: Iterable[Evaluator]) -> "Registry":
        """Return a registry that has these evaluators as well, under their own names."""
        made = {one.name: _always(one) for one in evaluators}
        return Registry({**self._given, **made})

    def names(self) -> list[str]:
        """Return the names of all evaluators, sorted."""
        return sorted({*self._given, *self._installed})

    def build(self, metric: EvalMetric) -> Evaluator:
        """Return the evaluator of a metric: `evaluatorName`, or the metric's own name.

        Raises UnknownEvaluatorError when no evaluator has the name, MetricError when the criterion
        does not suit it.
        """
        name = metric.evaluator_name or metric.metric_name
        factory = self._given.get(name) or self._load(name)
        try:
            return factory(metric)
        except MetricError as error:
            if error.metric_name:
                raise
            raise MetricError(str(error), metric_name=metric.metric_name) from error

    @cached_property
    def _installed(self) -> dict[str, EntryPoint]:
        return {point.name: point for point in entry_points(group=GROUP)}

    def _load(self, name: str) -> EvaluatorFactory:
        point = self._installed.get(name)
        if point is None:
            raise UnknownEvaluatorError(name, self.names())
        try:
            factory: Any = point.load()  # whatever the entry point names
        except ImportError as error:
            raise MetricError(
                f"evaluator '{name}' ({point.value}) cannot be imported: {error}; "
                "install what it needs, e.g. the extra evaltap[evaluator]"
            ) from error
        if not callable(factory):
            raise MetricError(f"entry point '{name}' ({point.value}) is not a factory")
        return cast(EvaluatorFactory, factory)


def reject_unknown(part: BaseModel, where: str) -> None:
    """Raise MetricError for a key that nothing reads: a typing error would change scores."""
    if part.model_extra:
        known = ", ".join(field.alias or name for name, field in type(part).model_fields.items())
        raise MetricError(f"{where} has the key '{next(iter(part.model_extra))}'; known: {known}")


def known_keys(part: BaseModel, where: str) -> None:
    """Raise MetricError for a key that nothing reads, at any depth but in other metrics."""
    reject_unknown(part, where)
    for name, field in type(part).model_fields.items():
        value = getattr(part, name)
        for one in value if isinstance(value, list) else [value]:
            if isinstance(one, BaseModel) and not isinstance(one, EvalMetric):
                known_keys(one, f"{where}.{field.alias or name}")


def _always(evaluator: Evaluator) -> EvaluatorFactory:
    return lambda _: evaluator


def require(metric: EvalMetric, part: Part | None, key: str) -> Part:
    """Return a part of the metric's criterion; raise MetricError when it is not given."""
    if part is not None:
        return part
    given = list(metric.criterion.model_dump(by_alias=True)) if metric.criterion else []
    raise MetricError(
        f"criterion.{key} not configured: found {', '.join(given) or 'no criterion'}; "
        f"add criterion.{key} to the metric",
        metric_name=metric.metric_name,
    )
