"""`rule_avg_score`: the weighted share of deterministic rules that a text of each turn meets.

It needs neither a reference nor a judge, so it suits recorded traffic without labels.
"""

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.aggregation import weighted_mean
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    Finding,
    MissingEvidence,
    TurnEvaluator,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.rules import compile_rules
from evaltap.evaluator.scoring.criteria.content.turn_text import text_at
from evaltap.schemas.formats.metric import EvalMetric


class Rules(TurnEvaluator):
    """Checks one text of each turn against every rule.

    Raises MetricError if `criterion.rules` is missing or a rule is invalid.
    """

    name = "rule_avg_score"
    version = "2"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.rules, "rules")
        self._target = text_at(criterion.target, "rules.target")
        self.needs = self._target.needs
        self._rules = compile_rules(criterion.rules)
        self._weights = [rule.weight for rule in self._rules]

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding | MissingEvidence:
        """Return the weighted mean of the rules' scores."""
        text = self._target.of(turn, case)
        if isinstance(text, MissingEvidence):
            return text
        verdicts = tuple(rule.verdict(text) for rule in self._rules)
        score = weighted_mean([verdict.score for verdict in verdicts], self._weights)
        broken = [f"{verdict.id}: {verdict.reason}" for verdict in verdicts if verdict.score < 1]
        return Finding(score, "; ".join(broken), verdicts)
