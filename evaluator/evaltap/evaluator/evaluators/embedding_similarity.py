"""`embedding_similarity`: how near the final response is to the expected one in a model's space."""

from typing import Final

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    TurnScore,
)
from evaltap.evaluator.cost import CostClass
from evaltap.evaluator.criteria.turn_text import TARGETS, read_text
from evaltap.evaluator.embedding import checked, cosine
from evaltap.evaluator.errors import EmbeddingError, EmbeddingsNotConfigured
from evaltap.evaluator.registry import known_keys, require
from evaltap.schemas.metric import EvalMetric

_ANSWER: Final = TARGETS[0]


class EmbeddingSimilarity:
    """The cosine of two texts' vectors, and 0 where it is negative.

    Raises MetricError when `criterion.embedding` is missing.
    """

    name = "embedding_similarity"
    version = "1"

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.embedding if metric.criterion else None
        criterion = require(metric, part, "embedding")
        known_keys(criterion, "criterion.embedding")
        self._model = criterion.model
        local = self._model is not None and self._model.provider_name.lower() == "wordllama"
        self.cost_class = CostClass.LOCAL_MODEL if local else CostClass.PAID_JUDGE
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn that has both texts; all texts go out in one request."""
        if len(context.actual) != len(context.expected):
            return EvaluatorFailure("turn counts differ", "TurnCountMismatch")
        pairs: list[tuple[str, str] | str] = []
        for turn, wanted in zip(context.actual, context.expected, strict=True):
            one, lacking = read_text(turn, _ANSWER)
            other, also = read_text(wanted, _ANSWER)
            reason = lacking or (f"expected {also}" if also else None)
            pairs.append((one, other) if reason is None else reason)
        texts = [*dict.fromkeys(text for pair in pairs if isinstance(pair, tuple) for text in pair)]
        try:
            vectors = self._vectors(context, texts) if texts else {}
        except EmbeddingsNotConfigured as error:
            skipped = TurnScore(Status.NOT_EVALUATED, reason=str(error))
            turns = (skipped,) * len(context.actual)
            return MetricScore(Status.NOT_EVALUATED, None, str(error), turns)
        except EmbeddingError as error:
            return EvaluatorFailure(str(error), type(error).__name__)
        return average(tuple(self._turn(pair, vectors) for pair in pairs), self._threshold)

    def _vectors(self, context: EvaluationContext, texts: list[str]) -> dict[str, list[float]]:
        embedder = context.services.embeddings(self._model)
        return dict(zip(texts, checked(embedder.embed(texts), len(texts)), strict=True))

    def _turn(self, pair: tuple[str, str] | str, vectors: dict[str, list[float]]) -> TurnScore:
        if isinstance(pair, str):
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {pair}")
        near = cosine(vectors[pair[0]], vectors[pair[1]])
        if near is None:
            reason = "a text has no direction in the model's space (no word that it knows)"
            return TurnScore(Status.NOT_EVALUATED, reason=reason)
        score = max(0.0, near)
        return TurnScore(status_of(score, self._threshold), score, f"cosine {near:.3f}", near)
