"""What the evaluators that compare each actual turn with its expected turn have in common."""

from typing import Final, Protocol

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)


class Matcher(Protocol):
    """A compiled criterion over two turns."""

    def mismatch(self, actual: Turn, expected: Turn) -> str | None:
        """Return why the turns do not match, None when they do."""
        ...

    def lacking(self, actual: Turn, expected: Turn) -> str | None:
        """Return which compared evidence is not there, None when all of it is."""
        ...


class TurnScorer:
    """Scores each turn 1 or 0 by a matcher, and the case by their mean."""

    def __init__(self, matcher: Matcher, threshold: float) -> None:
        self._matcher = matcher
        self._threshold = threshold
        self._match: Final = TurnScore(status_of(1.0, threshold), 1.0, "", 1.0)
        self._missed: Final = status_of(0.0, threshold)
        self._all_match: dict[int, MetricScore] = {}

    def score(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the score of a case, or a failure when its turns do not pair up."""
        actual, expected = context.actual, context.expected
        if len(actual) != len(expected):
            return EvaluatorFailure(
                f"turn counts differ: {len(actual)} actual, {len(expected)} expected",
                "TurnCountMismatch",
            )
        turns = tuple(map(self._score_turn, actual, expected))
        match = self._match
        for turn in turns:
            if turn is not match:
                return average(turns, self._threshold)
        # Results are immutable, so that all cases without a flaw share one.
        known = self._all_match.get(len(turns))
        if known is None:
            known = self._all_match[len(turns)] = average(turns, self._threshold)
        return known

    def _score_turn(self, actual: Turn, expected: Turn) -> TurnScore:
        if not (actual.unmarked and expected.unmarked):
            lacking = self._matcher.lacking(actual, expected)
            if lacking is not None:
                return TurnScore(Status.NOT_EVALUATED, None, f"evidence missing: {lacking}")
        reason = self._matcher.mismatch(actual, expected)
        if reason is None:
            return self._match
        return TurnScore(self._missed, 0.0, reason, 0.0)
