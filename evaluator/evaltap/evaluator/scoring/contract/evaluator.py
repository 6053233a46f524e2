"""The registry of evaluators: which are installed, and which one scores a metric.

An evaluator is any object with the members of `Evaluator`.  A package provides one through an entry point in
the group `evaltap.evaluators`: the name of the metric, and a factory that takes the metric.  Nothing is
imported before a metric needs it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from functools import cache, cached_property, partial
from importlib.metadata import EntryPoint, PackageNotFoundError, distribution, entry_points
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

from evaltap.evaluator.scoring.contract.comparisons import Comparisons
from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
)
from evaltap.evaluator.scoring.contract.errors import MetricError, UnknownEvaluatorError
from evaltap.schemas.formats.metric import EvalMetric

GROUP: Final = "evaltap.evaluators"


@runtime_checkable
class Evaluator(Protocol):
    """Scores cases under one metric.

    The factory is called once for each metric; it checks the criterion, compiles it and raises `MetricError`
    if it is unusable.  `evaluate` is called once for each case, possibly from several threads concurrently,
    and must not change its context.  A failure to score a case is returned as `EvaluatorFailure`; an
    exception counts as a bug in the evaluator and is recorded as a failure of this metric for this case.
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
        """Return a score for each turn and for the case, or the reason why there is none."""
        ...


EvaluatorFactory = Callable[[EvalMetric], Evaluator]
Factory = TypeVar("Factory", bound=EvaluatorFactory)


def comparing_calls(factory: Factory) -> Factory:
    """Mark the factory of evaluators that compare calls with expected ones, so that readers can show how."""
    factory.compares_calls = True  # type: ignore[attr-defined]  # functions and classes take any
    return factory


def taking_comparisons(factory: Factory) -> Factory:
    """Mark the factory of evaluators that take `comparisons`, besides the metric."""
    factory.takes_comparisons = True  # type: ignore[attr-defined]  # functions and classes take any
    return factory


class Registry:
    """The evaluators that metrics may name: installed ones and the given ones, which take precedence.

    `comparisons` are the functions that criteria may name, in addition to installed ones.

    >>> Registry().names()[:2]
    ['completed_within', 'compression_ratio']
    """

    def __init__(
        self,
        factories: Mapping[str, EvaluatorFactory] | None = None,
        *,
        comparisons: Comparisons | None = None,
    ) -> None:
        self._given = dict(factories or {})
        self._comparisons = comparisons

    def extended(self, evaluators: Iterable[Evaluator]) -> "Registry":
        """Return a registry that also contains these evaluators, under their own names."""
        made = {one.name: _always(one) for one in evaluators}
        return Registry({**self._given, **made}, comparisons=self._comparisons)

    def names(self) -> list[str]:
        """Return the names of all evaluators, sorted."""
        return sorted({*self._given, *self._installed})

    def summary(self, name: str) -> str:
        """Return the first line of an evaluator's docstring.

        Raises UnknownEvaluatorError if no evaluator has the name, and MetricError if it cannot be imported.
        """
        factory = self._given.get(name) or self._load(name)
        return (factory.__doc__ or "").strip().partition("\n")[0]

    def compares_calls(self, name: str) -> bool:
        """Check whether the evaluator compares calls with expected ones; not if it is not installed.

        Looks at its factory only: building an evaluator may run a user's code.
        """
        try:
            factory = self._given.get(name) or self._load(name)
        except (UnknownEvaluatorError, MetricError):
            return False
        return getattr(factory, "compares_calls", False) is True

    def build(self, metric: EvalMetric) -> Evaluator:
        """Return the evaluator named by the metric's `evaluatorName`, or by the metric's own name.

        Raises UnknownEvaluatorError if no evaluator has the name, and MetricError if the criterion does not
        suit it.
        """
        name = metric.evaluator_name or metric.metric_name
        factory = self._given.get(name) or self._load(name)
        if self._comparisons is not None and getattr(factory, "takes_comparisons", False):
            # Any: a factory that is marked takes an argument that not every factory has.
            taking: Any = factory
            factory = partial(taking, comparisons=self._comparisons)
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
        point = _own().get(name) or self._installed.get(name)
        if point is None:
            raise UnknownEvaluatorError(name, self.names())
        try:
            factory: EvaluatorFactory = point.load()  # whatever the entry point names, unchecked
        except ImportError as error:
            raise MetricError(
                f"evaluator '{name}' ({point.value}) cannot be imported: {error}; "
                "install what it needs, e.g. the extra evaltap[evaluator]"
            ) from error
        if not callable(factory):
            raise MetricError(f"entry point '{name}' ({point.value}) is not a factory")
        return factory


@cache
def _own() -> Mapping[str, EntryPoint]:
    """Return evaltap's own evaluators; looking through all installed packages takes much longer."""
    try:
        points = distribution("evaltap").entry_points
    except PackageNotFoundError:
        return {}
    return {point.name: point for point in points.select(group=GROUP)}


def _always(evaluator: Evaluator) -> EvaluatorFactory:
    return lambda _: evaluator


class CostClass(StrEnum):
    """The kinds of cost of scoring a case, cheapest first."""

    FREE = "free"
    LOCAL_MODEL = "local_model"
    PAID_JUDGE = "paid_judge"


class Traits(NamedTuple):
    """Attributes that an evaluator may have besides the members of `Evaluator`, and their defaults."""

    cost_class: CostClass | None = None
    """None: a paid judge if the metric has `llmJudge`, otherwise free."""
    outline_suffices: bool = False
    """Whether arguments and results of calls are rarely read, so that decoding them can be deferred."""
    threshold: float = 0.0
    """The threshold of an evaluator that was created without a metric."""
    needs: Sequence[str] = ()
    """The fields without which a turn is not evaluated."""
    reads_answer: bool | None = None
    """Whether turns of failed runs are not scored.  None: they are not if the final response is needed, or if
    scoring costs something."""
    separate_turns: bool = False
    """Whether a turn's score depends on nothing but the turn and its expected turn, and `sum_up` returns the
    score of a case.  Only the new turns of a long session are then read and scored."""
    takes_known: bool = False
    """Whether the evaluator skips turns whose scores are known."""
    limits_itself: bool = False
    """Whether the evaluator always ends in bounded time, so that the time limit for cases does not apply."""
    shares_thread: bool = False
    """Whether it only waits through `evaltap.evaluator.scoring.waiting`, so that it needs no thread."""
    reads_latency: bool = False
    """Whether scores depend on how long turns took, so that recorded tool calls take as long as they took."""


def traits_of(evaluator: Evaluator) -> Traits:
    """Return the traits of an evaluator, with defaults for missing attributes."""
    # Evaluators need not inherit from any class, so their attributes are looked up by name.
    given = {name: getattr(evaluator, name, None) for name in Traits._fields}
    return Traits(**{name: value for name, value in given.items() if value is not None})


def cost_class_of(metric: EvalMetric, evaluator: Evaluator) -> CostClass:
    """Return the cost class of scoring a case under a metric."""
    if (given := traits_of(evaluator).cost_class) is not None:
        return CostClass(given)
    judged = metric.criterion is not None and metric.criterion.llm_judge is not None
    return CostClass.PAID_JUDGE if judged else CostClass.FREE


def reads_answer(metric: EvalMetric, evaluator: Evaluator) -> bool:
    """Return whether a metric scores the answer of a turn, which a failed run does not have."""
    traits = traits_of(evaluator)
    if traits.reads_answer is not None:
        return traits.reads_answer
    return "finalResponse" in traits.needs or cost_class_of(metric, evaluator) is not CostClass.FREE
