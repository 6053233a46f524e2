"""`tool_trajectory_avg_score`: the share of turns whose tool calls match the expected ones."""

from evaltap.evaluator.scoring.contract.comparisons import Comparisons, Names, WholeTurns
from evaltap.evaluator.scoring.contract.evaluator import comparing_calls, taking_comparisons
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.calls.tool_trajectory import ToolTrajectoryMatcher
from evaltap.evaluator.scoring.evaluators.pairwise import Matcher, PairwiseEvaluator
from evaltap.schemas.formats.metric import EvalMetric


@comparing_calls
@taking_comparisons
class ToolTrajectory(PairwiseEvaluator):
    """Match the tool calls of each turn one to one with those of the expected turn.

    Raises MetricError if `criterion.toolTrajectory` is missing, or names a comparison that does not exist.
    """

    name = "tool_trajectory_avg_score"

    def __init__(self, metric: EvalMetric, comparisons: Comparisons | None = None) -> None:
        criterion = require(metric, lambda given: given.tool_trajectory, "toolTrajectory")
        names = Names(comparisons)
        if criterion.compare_name:
            check = names.comparison("toolTrajectory", criterion.compare_name)
            matcher: Matcher = WholeTurns(check, "tools")
        else:
            matcher = ToolTrajectoryMatcher(criterion, names)
        super().__init__(metric, matcher)
        self.version = names.version(self.version)
