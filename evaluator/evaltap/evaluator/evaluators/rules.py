"""`rule_avg_score`: the weighted share of deterministic rules that a text of each turn keeps.

No reference and no judge is needed, so it suits recorded traffic that nobody has labelled.
"""

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.criteria.rules import compile_rules
from evaltap.evaluator.criteria.turn_text import check_target, read_text
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric


class Rules:
    """Check one text of each turn against every rule.

    Raises MetricError when `criterion.rules` is missing or a rule makes no sense.
    """

    name = "rule_avg_score"
    version = "1"

    def __init__(self, metric: EvalMetric) -> None:
        criterion = require(metric, metric.criterion.rules if metric.criterion else None, "rules")
        self._target = check_target(criterion.target, "rules")
        self._rules = compile_rules(criterion.rules)
        self._weight = sum(rule.weight for rule in self._rules)
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the weighted mean of the rules' scores for each turn, and the mean over turns."""
        return average(tuple(map(self._score_turn, context.actual)), self._threshold)

    def _score_turn(self, turn: Turn) -> TurnScore:
        text, lacking = read_text(turn, self._target)
        if lacking is not None:
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {lacking}")
        verdicts = tuple(rule.verdict(text) for rule in self._rules)
        weighed = zip(verdicts, self._rules, strict=True)
        score = sum(verdict.score * rule.weight for verdict, rule in weighed) / self._weight
        broken = [f"{verdict.id}: {verdict.reason}" for verdict in verdicts if verdict.score < 1]
        return TurnScore(
            status_of(score, self._threshold), score, "; ".join(broken), score, verdicts
        )
