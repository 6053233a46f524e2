"""Evaluators by name: what is installed, and how a metric finds the one that scores it.

An evaluator is anything with the members of `Evaluator`.  A package offers one by an entry point in
the group `evaltap.evaluators`: the name of the metric, and a factory that takes the metric.
Nothing is imported before a metric asks for it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Final, NamedTuple, Protocol, runtime_checkable

from evaltap.evaluator.contract.context import EvaluationContext, EvaluatorFailure, MetricScore
from evaltap.evaluator.contract.errors import MetricError, UnknownEvaluatorError
from evaltap.schemas.formats.metric import EvalMetric

GROUP: Final = "evaltap.evaluators"


@runtime_checkable
class Evaluator(Protocol):
    """Scores cases under one metric.

    The factory is called once for each metric; it checks the criterion, compiles it and raises
    `MetricError` when it cannot be used.  `evaluate` is called once for each case, possibly from
    several threads at a time, and must not change its context.  What goes wrong with a case is
    returned as `EvaluatorFailure`; an exception counts as a bug in the evaluator and is recorded
    as a failure of this metric for this case.
    """

    @property
    def name(self) -> str:
        """The name under which the evaluator is registered."""
        ...

    @property
    def version(self) -> str:
        """Changes whenever the same case could get a different score; older scores then count as stale."""
        ...

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return one row for each turn and the score of the case, or why there is none."""
        ...


EvaluatorFactory = Callable[[EvalMetric], Evaluator]


class Registry:
    """The evaluators that metrics may name: installed ones and those given here, which take precedence."""

    def __init__(self, factories: Mapping[str, EvaluatorFactory] | None = None) -> None:
        self._given = dict(factories or {})

    def extended(self, evaluators: Iterable[Evaluator]) -> "Registry":
        """Return a registry that has these evaluators as well, under their own names."""
        made = {one.name: _always(one) for one in evaluators}
        return Registry({**self._given, **made})

    def names(self) -> list[str]:
        """Return the names of all evaluators, sorted."""
        return sorted({*self._given, *self._installed})

    def summary(self, name: str) -> str:
        """Return the first line of an evaluator's docstring.

        Raises UnknownEvaluatorError when no evaluator has the name, MetricError when it cannot be
        imported.
        """
        factory = self._given.get(name) or self._load(name)
        return (factory.__doc__ or "").strip().partition("\n")[0]

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
            factory: EvaluatorFactory = point.load()  # or whatever the entry point names
        except ImportError as error:
            raise MetricError(
                f"evaluator '{name}' ({point.value}) cannot be imported: {error}; "
                "install what it needs, e.g. the extra evaltap[evaluator]"
            ) from error
        if not callable(factory):
            raise MetricError(f"entry point '{name}' ({point.value}) is not a factory")
        return factory


def _always(evaluator: Evaluator) -> EvaluatorFactory:
    return lambda _: evaluator


class CostClass(StrEnum):
    """What scoring a case takes, cheapest first."""

    FREE = "free"
    LOCAL_MODEL = "local_model"
    PAID_JUDGE = "paid_judge"


class Traits(NamedTuple):
    """Attributes that an evaluator may have besides the members of `Evaluator`, and their defaults."""

    cost_class: CostClass | None = None
    """None: a paid judge where the metric has `llmJudge`, else free."""
    outline_suffices: bool = False
    """Whether it rarely looks into arguments and results of calls, so that decoding may wait."""
    threshold: float = 0.0
    """The threshold of an evaluator that was made without a metric."""
    needs: Sequence[str] = ()
    """The fields without which a turn is not evaluated."""
    reads_answer: bool | None = None
    """Whether a turn whose run failed holds nothing to score; None: where it needs the final response, or
    costs something."""
    takes_known: bool = False
    """Whether it leaves out turns whose scores are known."""
    limits_itself: bool = False
    """Whether it ends in bounded time by itself, so that the limit for cases is not for it."""
    shares_thread: bool = False
    """Whether all its waits are those of `evaltap.evaluator.waiting`, so that it needs no thread."""


def traits_of(evaluator: Evaluator) -> Traits:
    """Return the traits of an evaluator, the defaults for those it does not have."""
    # An evaluator need not be a subclass of anything, so its attributes have to be looked up.
    given = {name: getattr(evaluator, name, None) for name in Traits._fields}
    return Traits(**{name: value for name, value in given.items() if value is not None})


def cost_class_of(metric: EvalMetric, evaluator: Evaluator) -> CostClass:
    """Return what it costs to score a case under a metric."""
    given = traits_of(evaluator).cost_class
    if given is not None:
        return CostClass(given)
    judged = metric.criterion is not None and metric.criterion.llm_judge is not None
    return CostClass.PAID_JUDGE if judged else CostClass.FREE


def reads_answer(metric: EvalMetric, evaluator: Evaluator) -> bool:
    """Tell whether a metric scores the answer of a turn, which a failed run does not have."""
    traits = traits_of(evaluator)
    if traits.reads_answer is not None:
        return traits.reads_answer
    return "finalResponse" in traits.needs or cost_class_of(metric, evaluator) is not CostClass.FREE
