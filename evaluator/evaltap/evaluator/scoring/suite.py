"""`Suite`: run evaluators one after the other, and stop at the first error.

An error means that something is broken (an unreachable judge, an evaluator that raises), so continuing would
only cost money.  A failed metric is a normal result and does not stop the others.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from evaltap.evaluator.scoring.contract.context import (
    EvaluationContext,
    EvaluatorFailure,
    RubricVerdict,
    Services,
    Status,
)
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.evaluator import CostClass, Evaluator, Registry, traits_of
from evaltap.evaluator.scoring.contract.turn_evaluator import CaseResult, Finding, TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.scorer import CaseScorer, MetricOutcome, failed
from evaltap.schemas.files.documents import case_data
from evaltap.schemas.formats.case import EvalCase
from evaltap.schemas.formats.metric import EvalMetric


@dataclass(frozen=True, slots=True)
class SuiteResult:
    """The outcome of each member, in order, and the overall verdict."""

    status: Status
    """The first that applies: crashed (the agent's run failed), error, failed, not_evaluated, passed."""
    score: float | None
    """The share of scored members that passed; None if none was scored, or after an error."""
    reason: str
    outcomes: tuple[MetricOutcome, ...]
    """One for each member; those after an error are not_evaluated, with that reason."""

    @property
    def passed(self) -> bool:
        """Whether every member passed."""
        return self.status is Status.PASSED


class Suite:
    """Metrics and evaluators (`Func`, or your own) that run on a case in order.

    The constructor raises MetricError or UnknownEvaluatorError for a member that cannot be built.

    >>> from evaltap.evaluator import Func
    >>> suite = Suite([Func(lambda turn, expected: len(turn.final_text) < 500, name="brief")])
    >>> case = {
    ...     "evalId": "s-1", "evalMode": "trace", "sessionInput": {}, "actualConversation": [
    ...         {"invocationId": "t-1", "userContent": {"role": "user", "content": "When?"},
    ...          "finalResponse": {"role": "assistant", "content": "On Monday."}}]}
    >>> suite.run(case).passed
    True
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
        other = next((member for member in own if not hasattr(member, "evaluate")), None)
        if other is not None:
            found = type(other).__name__
            raise MetricError(f"a member is a {found}; expected an EvalMetric or an evaluator")
        metrics = [
            member
            if isinstance(member, EvalMetric)
            else EvalMetric(metric_name=member.name, threshold=traits_of(member).threshold)
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
        """A scorer for each member."""
        return self._scorers

    def evaluate(self, case: EvalCase | Mapping[str, Any]) -> SuiteResult:
        """Run the members on a case; raises FormatError for data that is not an eval case."""
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
    """Return the overall verdict of a suite's outcomes."""
    found = {outcome.status for outcome in outcomes}
    order = (Status.CRASHED, Status.ERROR, Status.FAILED, Status.NOT_EVALUATED)
    status = next((one for one in order if one in found), Status.PASSED)
    scored = [outcome for outcome in outcomes if outcome.score is not None]
    passed = sum(outcome.status is Status.PASSED for outcome in scored)
    score = passed / len(scored) if scored and status is not Status.ERROR else None
    reasons = [
        f"{outcome.name}: {outcome.reason or outcome.status}"
        for outcome in outcomes
        if outcome.status is not Status.PASSED
    ]
    return SuiteResult(status, score, "; ".join(reasons), tuple(outcomes))


def _outcome(scorer: CaseScorer, data: Mapping[str, Any]) -> MetricOutcome:
    score = scorer.score(data)
    if score.metrics:
        return score.metrics[0]
    # The turns could not be paired, which is this member's error and stops the others.
    return failed(scorer.applied[0], score.error_message, "UnscorableCaseError")


def _not_run(scorer: CaseScorer, reason: str) -> MetricOutcome:
    return MetricOutcome(Status.NOT_EVALUATED, None, reason, (), scorer.applied[0])


class MetricSuite(TurnEvaluator):
    """Runs metrics on the whole case one after the other; the score is the share that passed.

    Raises MetricError if a member cannot be built or two have the same name.
    """

    name = "metric_suite"
    reads_answer = False  # the members decide for themselves
    shares_thread = True

    def __init__(self, metric: EvalMetric, registry: Registry | None = None) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.suite, "suite", closed=True)
        self._metrics = criterion.metrics
        self._registry = registry or Registry()
        scorers = Suite(self._metrics, registry=self._registry).scorers
        versions = [version for scorer in scorers for version in scorer.versions().values()]
        self.version = f"2.{hashlib.sha256(chr(31).join(versions).encode()).hexdigest()[:8]}"
        classes = [one for scorer in scorers for one in scorer.cost_classes()]
        self.reads_latency = any(scorer.reads_latency for scorer in scorers)
        self.cost_class = max(classes, key=list(CostClass).index)
        self._suites: dict[Services, Suite] = {}

    def score_turns(self, context: EvaluationContext) -> CaseResult:
        """Return the verdict on the case, as the row of each of its turns."""
        services = context.services
        suite = self._suites.get(services)
        if suite is None:
            suite = Suite(self._metrics, services=services, registry=self._registry)
            self._suites[services] = suite
        # A case's rubrics are for the metrics of the file, not for members of a suite.
        case = {key: value for key, value in context.case.items() if key != "rubrics"}
        result = suite.run(case)
        if result.status is Status.ERROR:
            return EvaluatorFailure(result.reason, "SuiteError")
        return [self._verdict(result)] * len(context.actual)

    def _verdict(self, result: SuiteResult) -> Finding:
        rows = tuple(
            RubricVerdict(outcome.name, float(outcome.status is Status.PASSED), outcome.reason)
            for outcome in result.outcomes
            if outcome.score is not None
        )
        failed = sum(row.score < 1 for row in rows)
        at_best = (len(result.outcomes) - failed) / len(result.outcomes)
        if result.score is None or (len(rows) < len(result.outcomes) and at_best >= self.threshold):
            # The members that were not evaluated decide.
            return Finding(None, result.reason, rows)
        return Finding(result.score, result.reason, rows)
