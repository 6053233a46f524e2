"""`sentiment_score` and `toxic_words`: what the words of one text of each turn tell, by word lists.

Each public function here is the factory of one evaluator.
"""

import re
from collections.abc import Callable
from math import isfinite
from typing import Final

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.criteria.sentiment import CATEGORIES, Tone, category_of, tone_of
from evaltap.evaluator.criteria.toxic_words import find_listed, listed_words
from evaltap.evaluator.criteria.turn_text import check_target, read_text
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.registry import known_keys, require
from evaltap.schemas.lexical import SentimentCriterion
from evaltap.schemas.metric import EvalMetric

Finding = tuple[float, str, float | str]
"""The score of a text, the reason for it, and its typed value."""


class Wording:
    """Scores one text of each turn by a function of that text."""

    version = "1"

    def __init__(
        self, name: str, metric: EvalMetric, target: str, find: Callable[[str], Finding]
    ) -> None:
        self.name = name
        self._target = target
        self._find = find
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return a score for each turn that has the text, and the mean."""
        return average(tuple(map(self._turn, context.actual)), self._threshold)

    def _turn(self, turn: Turn) -> TurnScore:
        text, lacking = read_text(turn, self._target)
        if lacking is not None:
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {lacking}")
        score, reason, value = self._find(text)
        return TurnScore(status_of(score, self._threshold), score, reason, value)


def sentiment(metric: EvalMetric) -> Wording:
    """`sentiment_score`: the tone of a text, as a score or against what is wanted."""
    part = metric.criterion.sentiment if metric.criterion else None
    criterion = require(metric, part, "sentiment")
    known_keys(criterion, "criterion.sentiment")
    mode = criterion.mode or "normalized"
    make = _MODES.get(mode)
    if make is None:
        raise MetricError(f"sentiment.mode is '{mode}'; expected one of {', '.join(_MODES)}")
    _check_sentiment(criterion, mode)
    find = make(criterion)
    target = check_target(criterion.target, "sentiment")
    return Wording("sentiment_score", metric, target, lambda text: find(tone_of(text)))


def toxic_words(metric: EvalMetric) -> Wording:
    """`toxic_words`: 1 when none of the listed words stands in the text, else 0."""
    part = metric.criterion.toxic_words if metric.criterion else None
    criterion = require(metric, part, "toxicWords")
    known_keys(criterion, "criterion.toxicWords")
    words = [word.strip() for word in criterion.values if word.strip()]
    if not words and not criterion.languages:
        raise MetricError("toxicWords has neither values nor languages; give at least one")
    border = "" if criterion.partial else r"(?<!\w)(?:{})(?!\w)"
    joined = "|".join(map(re.escape, sorted(words, key=len, reverse=True)))
    pattern = re.compile(border.format(joined) if border else joined, re.IGNORECASE)
    listed = listed_words(criterion.languages, criterion.allowed) if criterion.languages else None

    def find(text: str) -> Finding:
        found = {match[0].lower() for match in pattern.finditer(text)} if words else set()
        if listed is not None:
            found |= find_listed(listed, text)
        return float(not found), f"found {', '.join(sorted(found))}" if found else "", len(found)

    return Wording("toxic_words", metric, check_target(criterion.target, "toxicWords"), find)


def _check_sentiment(criterion: SentimentCriterion, mode: str) -> None:
    bounds = (criterion.min, criterion.max)
    if mode in ("comparative", "raw"):
        low, high = bounds
        given = [bound for bound in bounds if bound is not None]
        if not given or not all(map(isfinite, given)):
            raise MetricError(f"sentiment.mode {mode} needs min or max")
        if low is not None and high is not None and low > high:
            raise MetricError(f"sentiment.min is {low:g} and max is {high:g}; expected min <= max")
    elif bounds != (None, None):
        raise MetricError(f"sentiment.min and max are for modes comparative and raw, not {mode}")
    if mode == "category":
        unknown = [name for name in criterion.categories if name not in CATEGORIES]
        if unknown or not criterion.categories:
            raise MetricError(
                f"sentiment.categories is {criterion.categories}; "
                f"expected one or more of {', '.join(CATEGORIES)}"
            )
    elif criterion.categories:
        raise MetricError(f"sentiment.categories are for mode category, not {mode}")


def _normalized(_: SentimentCriterion) -> Callable[[Tone], Finding]:
    def find(tone: Tone) -> Finding:
        return (tone.compound + 1) / 2, f"compound {tone.compound:+.3f}", tone.compound

    return find


def _category(criterion: SentimentCriterion) -> Callable[[Tone], Finding]:
    def find(tone: Tone) -> Finding:
        found = category_of(tone)
        told = f"{found} (compound {tone.compound:+.3f})"
        return float(found in criterion.categories), told, found

    return find


def _within(
    title: str, amount: Callable[[Tone], float]
) -> Callable[[SentimentCriterion], Callable[[Tone], Finding]]:
    def make(criterion: SentimentCriterion) -> Callable[[Tone], Finding]:
        low = -float("inf") if criterion.min is None else criterion.min
        high = float("inf") if criterion.max is None else criterion.max

        def find(tone: Tone) -> Finding:
            value = amount(tone)
            told = f"{title} {value:+.3f}, wanted {low:g} to {high:g}"
            return float(low <= value <= high), told, value

        return find

    return make


_MODES: Final[dict[str, Callable[[SentimentCriterion], Callable[[Tone], Finding]]]] = {
    "normalized": _normalized,
    "comparative": _within("valence per word", lambda tone: tone.comparative),
    "raw": _within("valence", lambda tone: tone.raw),
    "category": _category,
}
