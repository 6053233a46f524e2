"""`embedding_similarity`: the similarity in meaning of the final response and the expected one."""

from collections.abc import Iterator, Mapping

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.context import EvaluationContext
from evaltap.evaluator.scoring.contract.evaluator import CostClass
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    Finding,
    MissingEvidence,
    TurnEvaluator,
    TurnResult,
    best_reference,
    turn_score,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.turn_text import text_at
from evaltap.evaluator.scoring.embeddings import checked, cosine
from evaltap.schemas.formats.metric import EvalMetric


class EmbeddingSimilarity(TurnEvaluator):
    """The cosine of the vectors of two texts; negative values count as 0.

    Raises MetricError if `criterion.embedding` is missing.
    """

    name = "embedding_similarity"
    version = "2"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.embedding, "embedding", closed=True)
        self._target = text_at(criterion.target, "embedding.target")
        self._reference = text_at(criterion.reference, "embedding.reference")
        self.needs, self.needs_expected = self._target.needs, self._reference.needs
        self._model = criterion.model
        local = self._model is not None and self._model.provider_name.lower() == "wordllama"
        self.cost_class = CostClass.LOCAL_MODEL if local else CostClass.PAID_JUDGE

    def score_turns(self, context: EvaluationContext) -> Iterator[TurnResult]:
        """Return the result of each turn; all texts are sent in one request."""
        turns = [
            [
                self._texts(turn, one, context.case)
                for one in (wanted, *(wanted.references if self.needs_expected else ()))
            ]
            for turn, wanted in zip(context.actual, context.expected, strict=True)
        ]
        texts = dict.fromkeys(
            text
            for pairs in turns
            for pair in pairs
            if not isinstance(pair, MissingEvidence)
            for text in pair
        )
        vectors: dict[str, list[float]] = {}
        if texts:
            embedder = context.services.embeddings(self._model)
            vectors = dict(zip(texts, checked(embedder.embed([*texts]), len(texts)), strict=True))
        for pairs in turns:
            found = [turn_score(_compared(pair, vectors), self.threshold) for pair in pairs]
            yield found[0] if len(found) == 1 else best_reference(found)

    def _texts(self, turn: Turn, wanted: Turn, case: Case) -> tuple[str, str] | MissingEvidence:
        if (missing := self.missing(turn, wanted)) is not None:
            return missing
        one, other = self._target.of(turn, case), self._reference.of(wanted, case)
        if isinstance(one, MissingEvidence):
            return one
        if isinstance(other, MissingEvidence):
            return MissingEvidence(f"expected {other.reason}")
        return one, other


def _compared(
    pair: tuple[str, str] | MissingEvidence, vectors: Mapping[str, list[float]]
) -> TurnResult:
    if isinstance(pair, MissingEvidence):
        return pair
    if (near := cosine(vectors[pair[0]], vectors[pair[1]])) is None:
        return Finding(None, "a text has no vector (the model knows none of its words)")
    return Finding(max(0.0, near), f"cosine {near:.3f}", value=near)
