"""`final_response_avg_score`: the share of turns whose final response matches the expected one."""

from evaltap.evaluator.scoring.contract.comparisons import Comparisons, Names, WholeTurns
from evaltap.evaluator.scoring.contract.evaluator import taking_comparisons
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.final_response import FinalResponseMatcher
from evaltap.evaluator.scoring.evaluators.pairwise import Matcher, PairwiseEvaluator
from evaltap.schemas.formats.metric import EvalMetric


@taking_comparisons
class FinalResponse(PairwiseEvaluator):
    """Compare the final response of each turn with that of the expected turn.

    Raises MetricError if `criterion.finalResponse` is missing, or names a comparison that does not exist.
    """

    name = "final_response_avg_score"
    reads_answer = True

    def __init__(self, metric: EvalMetric, comparisons: Comparisons | None = None) -> None:
        criterion = require(metric, lambda given: given.final_response, "finalResponse")
        names = Names(comparisons)
        if criterion.compare_name:
            check = names.comparison("finalResponse", criterion.compare_name)
            matcher: Matcher = WholeTurns(check, "finalResponse")
        else:
            matcher = FinalResponseMatcher(criterion, names)
            if criterion.rouge is not None:
                self.version = "3"  # words of scripts other than Latin
        super().__init__(metric, matcher)
        self.version = names.version(self.version)
