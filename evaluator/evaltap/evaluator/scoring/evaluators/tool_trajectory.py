"""`tool_trajectory_avg_score`: the share of turns whose tool calls match the expected ones."""

from evaltap.evaluator.scoring.contract.evaluator import comparing_calls
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.calls.tool_trajectory import ToolTrajectoryMatcher
from evaltap.evaluator.scoring.evaluators.pairwise import PairwiseEvaluator
from evaltap.schemas.formats.metric import EvalMetric


@comparing_calls
class ToolTrajectory(PairwiseEvaluator):
    """Match the tool calls of each turn one to one with those of the expected turn.

    Raises MetricError if `criterion.toolTrajectory` is missing or names a custom comparison.
    """

    name = "tool_trajectory_avg_score"

    def __init__(self, metric: EvalMetric) -> None:
        criterion = require(metric, lambda given: given.tool_trajectory, "toolTrajectory")
        super().__init__(metric, ToolTrajectoryMatcher(criterion))
