"""`user_feedback`: what users said about a turn, as its score."""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.turn_evaluator import TurnEvaluator
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.schemas.formats.metric import EvalMetric

NAME: Final = "user_feedback"


class UserFeedback(TurnEvaluator):
    """The share of a turn's feedback that is positive; turns without feedback are not evaluated.

    Raises MetricError if `criterion.feedback` is missing.
    """

    name = NAME
    reads_answer = False

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.feedback, "feedback", closed=True)
        self._asked = criterion.name
        self._least = criterion.min

    def score(self, turn: Turn, expected: Turn, case: Case) -> tuple[float | None, str]:
        """Return the share of positive feedback, and the comments on what is not."""
        given = [
            one
            for one in turn.data.get("feedback") or ()
            if not self._asked or one.get("name") == self._asked
        ]
        verdicts = [(one, good) for one in given if (good := self._good(one)) is not None]
        if not verdicts:
            kind = f" {self._asked!r}" if self._asked else ""
            return None, f"no feedback{kind} was given on this turn"
        bad = [one for one, good in verdicts if not good]
        comments = [comment for one in bad if (comment := one.get("comment"))]
        return (len(verdicts) - len(bad)) / len(verdicts), "; ".join(comments)

    def _good(self, feedback: Mapping[str, Any]) -> bool | None:
        """Return whether a piece of feedback is positive; None if it does not say."""
        if self._least is None:
            return feedback.get("positive")
        score = feedback.get("score")
        return None if score is None else score >= self._least


def reads_feedback(metrics: Iterable[EvalMetric]) -> bool:
    """Return whether any of the metrics, or of the members of their suites, needs feedback."""
    for metric in metrics:
        if (metric.evaluator_name or metric.metric_name) == NAME:
            return True
        suite = metric.criterion.suite if metric.criterion else None
        if suite is not None and reads_feedback(suite.metrics):
            return True
    return False
