"""`lexical_similarity`: the similarity of the letters or words of the final response and the expected one."""

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import MissingEvidence, TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.lexical import MEASURES, normalized
from evaltap.evaluator.scoring.criteria.content.turn_text import text_at
from evaltap.schemas.formats.metric import EvalMetric


class LexicalSimilarity(TurnEvaluator):
    """Compare the final response of each turn with the expected one, by letters or words.

    Raises MetricError if `criterion.lexical` is missing or names an unknown algorithm.
    """

    name = "lexical_similarity"
    version = "4"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.lexical, "lexical")
        self._target = text_at(criterion.target, "lexical.target")
        self._reference = text_at(criterion.reference, "lexical.reference")
        self.needs, self.needs_expected = self._target.needs, self._reference.needs
        self._algorithm = criterion.algorithm or "dice"
        if (measure := MEASURES.get(self._algorithm)) is None:
            raise MetricError(
                f"lexical.algorithm is '{self._algorithm}'; expected {' or '.join(MEASURES)}"
            )
        self._measure = measure
        self._case_sensitive = criterion.case_sensitive
        self._keep_space = criterion.keep_space

    def score(self, turn: Turn, expected: Turn, case: Case) -> MissingEvidence | tuple[float, str]:
        """Return the similarity of both texts."""
        given, wanted = self._target.of(turn, case), self._reference.of(expected, case)
        if isinstance(given, MissingEvidence):
            return given
        if isinstance(wanted, MissingEvidence):
            return MissingEvidence(f"expected {wanted.reason}")
        one, other = (
            normalized(text, case_sensitive=self._case_sensitive, keep_space=self._keep_space)
            for text in (given, wanted)
        )
        score = self._measure(one, other)
        return score, "" if score == 1 else f"{self._algorithm} {score:.3f}"
