"""`python_function` and `metric_suite`: a function of yours, and several metrics as one.

Each public name here makes one evaluator from a metric.
"""

import hashlib

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    RubricVerdict,
    Services,
    Status,
    TurnScore,
)
from evaltap.evaluator.cost import CostClass
from evaltap.evaluator.func import Func, load_function
from evaltap.evaluator.registry import Registry, known_keys, require
from evaltap.evaluator.suite import Suite, SuiteResult
from evaltap.schemas.metric import EvalMetric


def python_function(metric: EvalMetric) -> Func:
    """`python_function`: the function at `criterion.function.path`."""
    part = metric.criterion.function if metric.criterion else None
    criterion = require(metric, part, "function")
    known_keys(criterion, "criterion.function")
    return Func(load_function(criterion.path), name="python_function", threshold=metric.threshold)


class MetricSuite:
    """Run metrics one after the other on the whole case; the score is the share that passed.

    Raises MetricError when a member cannot be built or two have the same name.
    """

    name = "metric_suite"

    def __init__(self, metric: EvalMetric, registry: Registry | None = None) -> None:
        part = metric.criterion.suite if metric.criterion else None
        criterion = require(metric, part, "suite")
        known_keys(criterion, "criterion.suite")
        self._metrics = criterion.metrics
        self._registry = registry or Registry()
        scorers = Suite(self._metrics, registry=self._registry).scorers
        versions = [version for scorer in scorers for version in scorer.versions().values()]
        self.version = f"1.{hashlib.sha256(chr(31).join(versions).encode()).hexdigest()[:8]}"
        classes = [one for scorer in scorers for one in scorer.cost_classes()]
        self.cost_class = max(classes, key=list(CostClass).index)
        self._threshold = metric.threshold
        self._suites: dict[Services, Suite] = {}

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the verdict on the case, as the row of each of its turns."""
        services = context.services
        suite = self._suites.get(services)
        if suite is None:
            suite = Suite(self._metrics, services=services, registry=self._registry)
            self._suites[services] = suite
        # The rubrics of a case are for metrics of the file; those within a suite have their own.
        case = {key: value for key, value in context.case.items() if key != "rubrics"}
        result = suite.run(case)
        if result.status is Status.ERROR:
            return EvaluatorFailure(result.reason, "SuiteError")
        return average((self._verdict(result),) * len(context.actual), self._threshold)

    def _verdict(self, result: SuiteResult) -> TurnScore:
        rows = tuple(
            RubricVerdict(outcome.name, float(outcome.status is Status.PASSED), outcome.reason)
            for outcome in result.outcomes
            if outcome.score is not None
        )
        incomplete = len(rows) < len(result.outcomes)
        if result.score is None or (incomplete and result.score >= self._threshold):
            # What was evaluated does not fail, but a suite passes only when it is complete.
            return TurnScore(Status.NOT_EVALUATED, None, result.reason, rubric_scores=rows)
        status = status_of(result.score, self._threshold)
        return TurnScore(status, result.score, result.reason, result.score, rows)
