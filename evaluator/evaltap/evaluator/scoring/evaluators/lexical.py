"""`lexical_similarity`: the similarity of the letters or words of the final response and the expected one."""

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.lexical import MEASURES, measure_of, normalized
from evaltap.schemas.formats.metric import EvalMetric


class LexicalSimilarity(TurnEvaluator):
    """Compare the final response of each turn with the expected one, by letters or words.

    Raises MetricError if `criterion.lexical` is missing or names an unknown algorithm.
    """

    name = "lexical_similarity"
    version = "2"
    needs = needs_expected = ("finalResponse",)

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.lexical, "lexical")
        self._algorithm = criterion.algorithm or "dice"
        measure = measure_of(self._algorithm)
        if measure is None:
            raise MetricError(
                f"lexical.algorithm is '{self._algorithm}'; expected {' or '.join(MEASURES)}"
            )
        self._measure = measure
        self._case_sensitive = criterion.case_sensitive
        self._keep_space = criterion.keep_space

    def score(self, turn: Turn, expected: Turn, case: Case) -> tuple[float, str]:
        """Return the similarity of both texts."""
        one, other = (
            normalized(text or "", case_sensitive=self._case_sensitive, keep_space=self._keep_space)
            for text in (turn.final_text, expected.final_text)
        )
        score = self._measure(one, other)
        return score, "" if score == 1 else f"{self._algorithm} {score:.3f}"
