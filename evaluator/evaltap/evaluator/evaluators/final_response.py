"""`final_response_avg_score`: the share of turns whose final response matches the expected one."""

from evaltap.evaluator.context import EvaluationContext, EvaluatorFailure, MetricScore
from evaltap.evaluator.criteria.final_response import FinalResponseMatcher
from evaltap.evaluator.evaluators.pairwise import TurnScorer
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric


class FinalResponse:
    """Compare the final response of each turn with that of the expected turn.

    Raises MetricError when `criterion.finalResponse` is missing or names a custom comparison.
    """

    name = "final_response_avg_score"
    version = "1"
    outline_suffices = True

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.final_response if metric.criterion else None
        matcher = FinalResponseMatcher(require(metric, part, "finalResponse"))
        self._turns = TurnScorer(matcher, metric.threshold)

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return 1 or 0 for each turn and their mean."""
        return self._turns.score(context)
