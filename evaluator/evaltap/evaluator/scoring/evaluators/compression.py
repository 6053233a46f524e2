"""`compression_ratio`: how much shorter the final response is than the user's message."""

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import Finding, TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.tokenizers import cjk
from evaltap.schemas.formats.metric import EvalMetric


class CompressionRatio(TurnEvaluator):
    """1 if the words of the answer are at most a share of those of the message, otherwise 0.

    Raises MetricError if `criterion.compression` is missing or invalid.
    """

    name = "compression_ratio"
    needs = ("userContent", "finalResponse")

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.compression, "compression", closed=True)
        if criterion.max is None or not 0 < criterion.max < float("inf"):
            raise MetricError(
                f"compression.max is {criterion.max}; expected a share above 0, e.g. 0.5"
            )
        self._most = criterion.max

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding:
        """Return 1 or 0, with the share as the typed value."""
        before, after = (len(cjk(text or "")) for text in (turn.user_text, turn.final_text))
        if not before:
            return Finding(None, "the user's message has no words")
        share = after / before
        reason = f"{before} words -> {after}, {share:.2f} of them (at most {self._most:g})"
        return Finding(
            float(share <= self._most), "" if share <= self._most else reason, value=share
        )
