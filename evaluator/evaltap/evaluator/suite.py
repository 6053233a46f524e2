"""`Suite`: evaluators run one after the other; a failure is noted, an error stops the rest.

An error means that something is broken (a judge out of reach, a metric that raises), so going on
would only cost; a failure is a finding like any other.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaltap.evaluator.context import Services, Status
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.registry import Evaluator, Registry
from evaltap.evaluator.scoring import CaseScorer, MetricOutcome
from evaltap.schemas.case import EvalCase
from evaltap.schemas.documents import case_data
from evaltap.schemas.metric import EvalMetric


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """What each member found, in order, and what that comes to."""

    status: Status
    """error when one could not be done, else failed when one failed, else not_evaluated when one had
    no evidence, else passed."""
    score: float | None
    """The share of the members with a score that passed; None when none has one, or after an error."""
    reason: str
    outcomes: tuple[MetricOutcome, ...]
    """One for each member; those after an error are not_evaluated and say so."""

    @property
    def passed(self) -> bool:
        """Whether every member passed."""
        return self.status is Status.PASSED


class Suite:
    """Metrics and evaluators (`Func`, or your own) that are run in order on a case.

    Raises MetricError or UnknownEvaluatorError here, once, for a member that cannot be built.
    """

    def __init__(
        self,
        members: Sequence[EvalMetric | Evaluator],
        *,
        services: Services | None = None,
        registry: Registry | None = None,
    ) -> None:
        if not members:
            raise MetricError("a suite has no members; give it at least one metric or evaluator")
        own = [member for member in members if not isinstance(member, EvalMetric)]
        metrics = [
            member
            if isinstance(member, EvalMetric)
            else EvalMetric(metric_name=member.name, threshold=getattr(member, "threshold", 0.0))
            for member in members
        ]
        names = [metric.metric_name for metric in metrics]
        if len(set(names)) < len(names) or not all(names):
            raise MetricError(f"the members are named {', '.join(names)}; give each its own name")
        registry = (registry or Registry()).extended(own)
        whole = CaseScorer(metrics, services=services, registry=registry)
        self._scorers = [whole.only([place]) for place in range(len(metrics))]

    @property
    def scorers(self) -> Sequence[CaseScorer]:
        """A scorer for each member, with that one metric."""
        return self._scorers

    def evaluate(self, case: EvalCase | Mapping[str, Any]) -> SuiteResult:
        """Run the members on a case; raises FormatError for data that is no eval case."""
        return self.run(
            case_data(case.model_dump(by_alias=True) if isinstance(case, EvalCase) else case)
        )

    def run(self, data: Mapping[str, Any]) -> SuiteResult:
        """Run the members on canonical case data."""
        outcomes: list[MetricOutcome] = []
        broken = ""
        for scorer in self._scorers:
            outcome = _not_run(scorer, broken) if broken else _outcome(scorer, data)
            if outcome.status is Status.ERROR:
                broken = f"not run, as {outcome.name} was in error"
            outcomes.append(outcome)
        return summed_up(outcomes)


def summed_up(outcomes: Sequence[MetricOutcome]) -> SuiteResult:
    """Return what the outcomes of a suite come to."""
    found = {outcome.status for outcome in outcomes}
    order = (Status.ERROR, Status.FAILED, Status.NOT_EVALUATED)
    status = next((one for one in order if one in found), Status.PASSED)
    scored = [outcome for outcome in outcomes if outcome.score is not None]
    passed = sum(outcome.status is Status.PASSED for outcome in scored)
    score = passed / len(scored) if scored and status is not Status.ERROR else None
    told = [
        f"{outcome.name}: {outcome.reason or outcome.status}"
        for outcome in outcomes
        if outcome.status is not Status.PASSED
    ]
    return SuiteResult(status, score, "; ".join(told), tuple(outcomes))


def _outcome(scorer: CaseScorer, data: Mapping[str, Any]) -> MetricOutcome:
    score = scorer.score(data)
    if score.metrics:
        return score.metrics[0]
    # The case could not be laid out: that is this member's error, and it stops the others.
    metric = scorer.metrics[0]
    name, version = metric.metric_name, scorer.versions()[metric.metric_name]
    reason = score.error_message
    return MetricOutcome(
        name, Status.ERROR, None, metric.threshold, reason, (), version, metric, "CaseProblem"
    )


def _not_run(scorer: CaseScorer, reason: str) -> MetricOutcome:
    metric = scorer.metrics[0]
    name, version = metric.metric_name, scorer.versions()[metric.metric_name]
    status = Status.NOT_EVALUATED
    return MetricOutcome(name, status, None, metric.threshold, reason, (), version, metric)
