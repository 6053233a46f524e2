"""`state_match`: how alike the state after a turn is to the expected one."""

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.criteria.likeness import Likeness
from evaltap.evaluator.criteria.trajectory_diff import Change
from evaltap.evaluator.evaluators.against_references import criterion_of
from evaltap.schemas.metric import EvalMetric

_SHOWN = 8


class StateMatch:
    """Compare `state` of each actual turn with that of the expected turn, key by key.

    Raises MetricError when `criterion.trajectory.state` makes no sense.
    """

    name = "state_match"
    version = "1"

    def __init__(self, metric: EvalMetric) -> None:
        self._likeness = Likeness(criterion_of(metric).state)
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the likeness of the states after each turn, and their mean."""
        if len(context.actual) != len(context.expected):
            return EvaluatorFailure("turn counts differ", "TurnCountMismatch")
        return average(tuple(map(self._turn, context.actual, context.expected)), self._threshold)

    def _turn(self, actual: Turn, expected: Turn) -> TurnScore:
        for turn, side in ((actual, ""), (expected, "expected ")):
            lacking = turn.lacks("state")
            if lacking is None and turn.data.get("state") is None:
                lacking = "state is absent"
            if lacking is not None:
                return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {side}{lacking}")
        wanted, found = expected.data["state"], actual.data["state"]
        score = self._likeness.pair(wanted, found)
        changes = [str(Change(*each)) for each in self._likeness.changes(wanted, found)]
        more = f"; and {len(changes) - _SHOWN} more" if len(changes) > _SHOWN else ""
        reason = "; ".join(changes[:_SHOWN]) + more if score < 1 else ""
        return TurnScore(status_of(score, self._threshold), score, reason, score)
