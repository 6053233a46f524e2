"""`tool_trajectory_avg_score`: the share of turns whose tool calls match the expected ones."""

from evaltap.evaluator.context import EvaluationContext, EvaluatorFailure, MetricScore
from evaltap.evaluator.criteria.tool_trajectory import ToolTrajectoryMatcher
from evaltap.evaluator.evaluators.pairwise import TurnScorer
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric


class ToolTrajectory:
    """Match the tool calls of each turn one to one with those of the expected turn.

    Raises MetricError when `criterion.toolTrajectory` is missing or names a custom comparison.
    """

    name = "tool_trajectory_avg_score"
    version = "1"
    outline_suffices = True

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.tool_trajectory if metric.criterion else None
        matcher = ToolTrajectoryMatcher(require(metric, part, "toolTrajectory"))
        self._turns = TurnScorer(matcher, metric.threshold)

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return 1 or 0 for each turn and their mean."""
        return self._turns.score(context)
