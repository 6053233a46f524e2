"""Scoring of one case under a list of metrics: compiled once, called millions of times.

Works on a case as plain JSON data, builds no model objects and touches nothing outside; safe to use
from several threads when its evaluators are.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import Struct, structs

from evaltap.evaluator.aggregation import summarize
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Services,
    Status,
    TurnScore,
)
from evaltap.evaluator.cost import CostClass, cost_class_of
from evaltap.evaluator.errors import MetricError, UnknownEvaluatorError
from evaltap.evaluator.layout import CaseProblem, Conversation, lay_out, with_case_rubrics
from evaltap.evaluator.registry import Evaluator, Registry
from evaltap.schemas.metric import EvalMetric

if TYPE_CHECKING:
    from evaltap.evaluator.embedding import EnvironmentEmbedders
    from evaltap.evaluator.judge import EnvironmentJudges

OnUnknownMetric = Literal["error", "skip"]
KnownScores = Mapping[int, Sequence[TurnScore | None]]
OnBrokenMetric = Literal["error", "fail"]


class MetricOutcome(Struct, frozen=True):
    """One metric of one case; `error_type` is set when the evaluator failed."""

    name: str
    status: Status
    score: float | None
    threshold: float
    reason: str
    turns: tuple[TurnScore, ...]
    evaluator_version: str
    metric: EvalMetric
    """The metric as it was applied, with the rubrics that the case adds."""
    error_type: str = ""


class CaseScore(Struct, frozen=True):
    """One case under all metrics.

    `score` is 1 for a passed case and 0 for a failed one, and None when nothing says either: no
    metric was evaluated, or the case failed only because of errors.
    """

    eval_id: str
    status: Status
    score: float | None
    error_message: str
    metrics: tuple[MetricOutcome, ...]
    turn_ids: Sequence[str] = ()
    """The invocation ids of the actual turns; none when the case could not be laid out."""
    referenced: bool = False
    """Whether the case holds expected turns of its own."""


class CaseScorer:
    """Scores cases under the metrics it was made for.

    `unknown_metrics="skip"` leaves out metrics whose evaluator is not installed, as tRPC-Agent-Go
    does; otherwise they raise UnknownEvaluatorError.  A metric that cannot be built raises
    MetricError here, once; `broken_metrics="fail"` makes it fail each case instead.
    """

    def __init__(
        self,
        metrics: Sequence[EvalMetric],
        *,
        services: Services | None = None,
        registry: Registry | None = None,
        unknown_metrics: OnUnknownMetric = "error",
        broken_metrics: OnBrokenMetric = "error",
    ) -> None:
        self._services = services or _DEFAULT_SERVICES
        registry = registry or Registry()
        self._bound: list[_Bound] = []
        self._left_out: set[str] = set()
        for metric in metrics:
            try:
                evaluator = registry.build(metric)
            except UnknownEvaluatorError:
                if unknown_metrics == "error":
                    raise
                continue
            except MetricError as error:
                if broken_metrics == "error":
                    raise
                evaluator = _Broken(metric, error)
            self._bound.append(
                _Bound(metric, evaluator, metric.metric_name, metric.threshold, evaluator.version)
            )

    def only(self, indexes: Sequence[int]) -> "CaseScorer":
        """Return a scorer for some of the metrics, sharing what was compiled for them."""
        if len(indexes) == len(self._bound):
            return self
        part = CaseScorer([], services=self._services)
        part._bound = [self._bound[index] for index in indexes]
        part._left_out = {metric.metric_name for metric in self.metrics} - {
            metric.metric_name for metric in part.metrics
        }
        return part

    @property
    def metrics(self) -> list[EvalMetric]:
        """The metrics that are scored, in their order."""
        return [bound.metric for bound in self._bound]

    @property
    def outline_suffices(self) -> bool:
        """Whether all evaluators say that they rarely look into the arguments and results of calls."""
        return all(getattr(bound.evaluator, "outline_suffices", False) for bound in self._bound)

    def versions(self) -> dict[str, str]:
        """Return the evaluator version of each metric, by metric name."""
        return {bound.name: bound.version for bound in self._bound}

    def cost_classes(self) -> list[CostClass]:
        """Return what each metric costs, in their order."""
        return [cost_class_of(bound.metric, bound.evaluator) for bound in self._bound]

    @property
    def waits(self) -> bool:
        """Whether scoring waits for something outside, so that threads help and cases are dear."""
        return any(one is not CostClass.FREE for one in self.cost_classes())

    def score(self, case: Mapping[str, Any], known: KnownScores | None = None) -> CaseScore:
        """Return the scores of one case; never raises because of what the case holds.

        `known` are scores that turns of this case got before, by the number of the metric.
        """
        eval_id = case.get("evalId") or ""
        try:
            conversation = lay_out(case)
            rubrics = conversation.rubrics
            bounds = self._with_rubrics(rubrics) if rubrics else self._bound
        except (CaseProblem, TypeError, AttributeError, KeyError, ValueError) as problem:
            # Besides what is known to be wrong, a case may have another shape than an eval case.
            text = str(problem) if isinstance(problem, CaseProblem) else f"malformed: {problem}"
            return CaseScore(eval_id, Status.FAILED, None, text, ())
        outcomes, statuses = [], []
        for index, bound in enumerate(bounds):
            before = known.get(index, ()) if known else ()
            outcome = self._evaluate(case, conversation, bound, before)
            outcomes.append(outcome)
            statuses.append(outcome.status)
        status = summarize(statuses)
        score, message = _SCORES.get(status), ""
        if status is Status.FAILED:
            score = 0.0 if Status.FAILED in statuses else None
            if Status.ERROR in statuses:
                message = _errors(outcomes)
        ids = [turn.invocation_id for turn in conversation.actual]
        return CaseScore(
            eval_id, status, score, message, tuple(outcomes), ids, conversation.referenced
        )

    def _with_rubrics(self, rubrics: Sequence[Mapping[str, Any] | None]) -> "list[_Bound]":
        if self._left_out:
            rubrics = [
                rubric
                for rubric in rubrics
                if rubric is None or rubric.get("metricName") not in self._left_out
            ]
        extended = with_case_rubrics(self.metrics, rubrics)
        return [
            structs.replace(bound, metric=metric)
            for bound, metric in zip(self._bound, extended, strict=True)
        ]

    def _evaluate(
        self,
        case: Mapping[str, Any],
        conversation: Conversation,
        bound: "_Bound",
        known: Sequence[TurnScore | None],
    ) -> MetricOutcome:
        metric = bound.metric
        context = EvaluationContext(
            case, conversation.actual, conversation.expected, metric, self._services, known
        )
        result: MetricScore | EvaluatorFailure
        try:
            result = bound.evaluator.evaluate(context)
            if isinstance(result, MetricScore) and len(result.turns) != len(conversation.actual):
                result = _wrong_rows(len(result.turns), len(conversation.actual))
        except Exception as error:  # anyone's evaluator over anyone's data: one case, not the run
            result = EvaluatorFailure(f"{type(error).__name__}: {error}", type(error).__name__)
        name, threshold, version = bound.name, bound.threshold, bound.version
        if isinstance(result, EvaluatorFailure):
            reason, kind = result.reason, result.error_type
            return MetricOutcome(
                name, Status.ERROR, None, threshold, reason, (), version, metric, kind
            )
        status, score, reason, turns = result.status, result.score, result.reason, result.turns
        return MetricOutcome(name, status, score, threshold, reason, turns, version, metric)


class _Bound(Struct, frozen=True):
    """A metric with its evaluator, and what each of its outcomes repeats: models are slow to ask."""

    metric: EvalMetric
    evaluator: Evaluator
    name: str
    threshold: float
    version: str


class _Broken:
    """Stands in for an evaluator that could not be built, and fails each case with that reason."""

    version = ""

    def __init__(self, metric: EvalMetric, error: MetricError) -> None:
        self.name = metric.evaluator_name or metric.metric_name
        self._failure = EvaluatorFailure(str(error), type(error).__name__)

    def evaluate(self, context: EvaluationContext) -> EvaluatorFailure:
        return self._failure


_SCORES = {Status.PASSED: 1.0, Status.NOT_EVALUATED: None}


def _errors(outcomes: Sequence[MetricOutcome]) -> str:
    return "; ".join(
        f"metric {outcome.name}: {outcome.reason}"
        for outcome in outcomes
        if outcome.status is Status.ERROR
    )


def _wrong_rows(found: int, expected: int) -> EvaluatorFailure:
    return EvaluatorFailure(
        f"the evaluator returned {found} turn rows, expected {expected}: one for each turn",
        "RowCountMismatch",
    )


@cache
def _judges() -> "EnvironmentJudges":
    """Return the judges of production; shared, so that they keep their connections."""
    from evaltap.evaluator.judge import EnvironmentJudges

    return EnvironmentJudges()


@cache
def _embedders() -> "EnvironmentEmbedders":
    """Return the embedders of production; shared as the judges are."""
    from evaltap.evaluator.embedding import EnvironmentEmbedders

    return EnvironmentEmbedders()


_DEFAULT_SERVICES: Final = Services(
    judge=lambda model: _judges()(model), embeddings=lambda model: _embedders()(model)
)
"""Those of production, loaded when a metric asks for one."""
