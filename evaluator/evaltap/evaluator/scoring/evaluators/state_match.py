"""`state_match`: the similarity between the state after a turn and the expected state."""

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.turn_evaluator import TurnEvaluator
from evaltap.evaluator.scoring.criteria.calls.diff import Change
from evaltap.evaluator.scoring.criteria.calls.similarity import Similarity
from evaltap.evaluator.scoring.evaluators.against_references import criterion_of
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import some_of

_SHOWN = 8


class StateMatch(TurnEvaluator):
    """Compares `state` of each actual turn with that of the expected turn, key by key.

    Raises MetricError if `criterion.trajectory.state` is invalid.
    """

    name = "state_match"
    version = "3"
    needs = needs_expected = ("state",)

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        self._similarity = Similarity(criterion_of(metric).state)

    def score(self, turn: Turn, expected: Turn, case: Case) -> tuple[float, str]:
        """Return the similarity of the states after the turn."""
        wanted, found = expected.data["state"], turn.data["state"]
        score = self._similarity.pair(wanted, found)
        changes = [str(Change(*each)) for each in self._similarity.changes(wanted, found)]
        return score, some_of(changes, _SHOWN, "; ") if score < 1 else ""
