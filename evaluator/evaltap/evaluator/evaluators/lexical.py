"""`lexical_similarity`: how alike the letters of the final response and the expected one are."""

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.criteria.lexical import measure_of, normalized
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric


class LexicalSimilarity:
    """Compare the final response of each turn with the expected one, letter by letter.

    Raises MetricError when `criterion.lexical` is missing or names an unknown algorithm.
    """

    name = "lexical_similarity"
    version = "1"

    def __init__(self, metric: EvalMetric) -> None:
        criterion = require(
            metric, metric.criterion.lexical if metric.criterion else None, "lexical"
        )
        self._algorithm = criterion.algorithm or "dice"
        measure = measure_of(self._algorithm)
        if measure is None:
            raise MetricError(
                f"lexical.algorithm is '{self._algorithm}'; expected dice, jaro_winkler or levenshtein"
            )
        self._measure = measure
        self._case_sensitive = criterion.case_sensitive
        self._keep_space = criterion.keep_space
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the likeness for each turn that has both texts, and the mean."""
        if len(context.actual) != len(context.expected):
            return EvaluatorFailure("turn counts differ", "TurnCountMismatch")
        return average(tuple(map(self._turn, context.actual, context.expected)), self._threshold)

    def _turn(self, actual: Turn, expected: Turn) -> TurnScore:
        texts = []
        for turn, side in ((actual, ""), (expected, "expected ")):
            text, reason = turn.final_text, turn.lacks("finalResponse")
            if reason is not None or text is None:
                told = f"evidence missing: {side}{reason or 'finalResponse is absent'}"
                return TurnScore(Status.NOT_EVALUATED, reason=told)
            texts.append(
                normalized(text, case_sensitive=self._case_sensitive, keep_space=self._keep_space)
            )
        score = self._measure(texts[0], texts[1])
        told = "" if score == 1 else f"{self._algorithm} {score:.3f}"
        return TurnScore(status_of(score, self._threshold), score, told, score)
