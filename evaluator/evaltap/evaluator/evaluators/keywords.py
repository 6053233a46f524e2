"""`keyword_coverage`: the share of keywords that the final response holds."""

import re
from collections.abc import Mapping
from typing import Any, Final

from evaltap.evaluator.aggregation import average, status_of
from evaltap.evaluator.context import (
    EvaluationContext,
    EvaluatorFailure,
    MetricScore,
    Status,
    Turn,
    TurnScore,
)
from evaltap.evaluator.criteria.lexical import normalized
from evaltap.evaluator.errors import MetricError
from evaltap.evaluator.json_path import follow, read_path
from evaltap.evaluator.registry import require
from evaltap.schemas.metric import EvalMetric

SOURCES: Final = ("config", "reference", "context")
DEFAULT_MIN_LENGTH: Final = 4

_WORD: Final = re.compile(r"\w+")
_BORDER: Final = re.compile(r"(?<!\w)(?=\w)|(?<=\w)(?!\w)")  # where a word begins or ends


class KeywordCoverage:
    """Look for keywords in the final response of each turn.

    Raises MetricError when `criterion.keywords` is missing or makes no sense.
    """

    name = "keyword_coverage"
    version = "1"

    def __init__(self, metric: EvalMetric) -> None:
        part = metric.criterion.keywords if metric.criterion else None
        criterion = require(metric, part, "keywords")
        self._source = criterion.source or "config"
        if self._source not in SOURCES:
            raise MetricError(
                f"keywords.source is '{self._source}'; expected one of {', '.join(SOURCES)}"
            )
        if self._source == "config" and not any(map(str.strip, criterion.values)):
            raise MetricError("keywords.values is empty; give keywords, or another source")
        try:
            self._path = read_path(criterion.path) if self._source == "context" else []
        except ValueError as error:
            raise MetricError(f"keywords.path: {error}") from None
        self._values = criterion.values
        given = criterion.min_length
        self._min_length = DEFAULT_MIN_LENGTH if given is None else given
        self._partial = criterion.partial
        self._case_sensitive = criterion.case_sensitive
        self._keep_space = criterion.keep_space
        self._threshold = metric.threshold

    def evaluate(self, context: EvaluationContext) -> MetricScore | EvaluatorFailure:
        """Return the share for each turn with a final response, and the mean."""
        if len(context.actual) != len(context.expected):
            return EvaluatorFailure("turn counts differ", "TurnCountMismatch")
        turns = zip(context.actual, context.expected, strict=True)
        return average(
            tuple(self._turn(turn, other, context.case) for turn, other in turns), self._threshold
        )

    def _turn(self, turn: Turn, expected: Turn, case: Mapping[str, Any]) -> TurnScore:
        text, reason = turn.final_text, turn.lacks("finalResponse")
        if reason is None and text is None:
            reason = "finalResponse is absent"
        keywords = self._keywords(expected, case)
        if reason is None and isinstance(keywords, str):
            reason = keywords
        if reason is not None or text is None or isinstance(keywords, str):
            return TurnScore(Status.NOT_EVALUATED, reason=f"evidence missing: {reason}")
        body = self._searched(text)
        missing = [word for word in keywords if self._searched(word) not in body]
        score = 1 - len(missing) / len(keywords)
        told = f"missing: {', '.join(map(repr, missing))}" if missing else ""
        return TurnScore(status_of(score, self._threshold), score, told, score)

    def _keywords(self, expected: Turn, case: Mapping[str, Any]) -> list[str] | str:
        """Return the keywords, or why there are none."""
        if self._source == "config":
            found = self._values
        elif self._source == "reference":
            reason = expected.lacks("finalResponse")
            if reason is not None:
                return f"expected {reason}"
            words = _WORD.findall(expected.final_text or "")
            found = [word for word in words if len(word) >= self._min_length]
        else:
            try:
                value = follow(case, self._path)
            except ValueError as error:
                return f"keywords of the case: {error}"
            found = value.split(",") if isinstance(value, str) else value
            if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
                return "keywords of the case are neither a text nor a list of texts"
        distinct = {self._searched(word): word.strip() for word in found if word.strip()}
        return [*distinct.values()] or "there are no keywords"

    def _searched(self, text: str) -> str:
        """Return a text so that a keyword is found in it exactly when it is a part of it."""
        text = normalized(text, case_sensitive=self._case_sensitive, keep_space=self._keep_space)
        return text if self._partial else _BORDER.sub("\x00", text)
