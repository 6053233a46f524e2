"""`final_response_avg_score`: the share of turns whose final response matches the expected one."""

from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.final_response import FinalResponseMatcher
from evaltap.evaluator.scoring.evaluators.pairwise import PairwiseEvaluator
from evaltap.schemas.formats.metric import EvalMetric


class FinalResponse(PairwiseEvaluator):
    """Compare the final response of each turn with that of the expected turn.

    Raises MetricError if `criterion.finalResponse` is missing or names a custom comparison.
    """

    name = "final_response_avg_score"
    reads_answer = True

    def __init__(self, metric: EvalMetric) -> None:
        criterion = require(metric, lambda given: given.final_response, "finalResponse")
        super().__init__(metric, FinalResponseMatcher(criterion))
