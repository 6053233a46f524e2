"""`keyword_coverage`: the share of keywords that the final response contains."""

import re
from typing import Final

from evaltap.evaluator.cases.json_path import follow, read_path
from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    NOTHING_EXPECTED,
    MissingEvidence,
    TurnEvaluator,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.lexical import normalized
from evaltap.evaluator.scoring.criteria.content.tokenizers import MARKS, WITHOUT_SPACES
from evaltap.evaluator.scoring.criteria.content.turn_text import text_at
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import did_you_mean_one_of

SOURCES: Final = ("config", "reference", "context")
DEFAULT_MIN_LENGTH: Final = 4

_LETTER: Final = rf"[\w{MARKS}]"
_WORD: Final = re.compile(f"{_LETTER}+")
_BORDER: Final = re.compile(  # where a word begins or ends
    rf"(?<!{_LETTER})(?={_LETTER})|(?<={_LETTER})(?!{_LETTER})"
    rf"|(?=[{WITHOUT_SPACES}])|(?<=[{WITHOUT_SPACES}])"
)


class KeywordCoverage(TurnEvaluator):
    """Searches the final response of each turn for keywords.

    Raises MetricError if `criterion.keywords` is missing or invalid.
    """

    name = "keyword_coverage"
    version = "4"

    def __init__(self, metric: EvalMetric) -> None:
        super().__init__(metric)
        criterion = require(metric, lambda given: given.keywords, "keywords")
        self._target = text_at(criterion.target, "keywords.target")
        self.needs = self._target.needs
        self._source = criterion.source or "config"
        if self._source not in SOURCES:
            raise MetricError(
                f"keywords.source is '{self._source}'; {did_you_mean_one_of(self._source, SOURCES)}"
            )
        if self._source == "config" and not any(map(str.strip, criterion.values)):
            raise MetricError("keywords.values is empty; give keywords, or another source")
        if self._source == "context" and not criterion.path:
            raise MetricError("keywords.path is empty; give one, e.g. $.answer")
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

    def score(
        self, turn: Turn, expected: Turn, case: Case
    ) -> MissingEvidence | tuple[float | None, str]:
        """Return the share of the keywords that the final response contains."""
        text = self._target.of(turn, case)
        if isinstance(text, MissingEvidence):
            return text
        keywords = self._keywords(expected, case)
        if isinstance(keywords, str):
            return MissingEvidence(keywords)
        if not keywords:
            return None, "there are no keywords"
        body = self._searched(text)
        missing = [word for word in keywords if self._searched(word) not in body]
        score = (len(keywords) - len(missing)) / len(keywords)
        return score, f"missing: {', '.join(map(repr, missing))}" if missing else ""

    def _keywords(self, expected: Turn, case: Case) -> list[str] | str:
        """Return the keywords, or why they are not known."""
        if self._source == "config":
            found = self._values
        elif self._source == "reference":
            if not expected.referenced:
                return NOTHING_EXPECTED.reason
            if (reason := expected.lacks("finalResponse")) is not None:
                return f"expected {reason}"
            words = _WORD.findall(expected.final_text or "")
            found = [word for word in words if len(word) >= self._min_length]
        else:
            given = self._of_case(expected, case)
            if isinstance(given, str):
                return given
            found = given
        distinct = {self._searched(word): word.strip() for word in found if word.strip()}
        return [*distinct.values()]

    def _of_case(self, expected: Turn, case: Case) -> list[str] | str:
        """Return the keywords at a path of the case, or why there are none."""
        try:
            inside = self._path[:1] and self._path[0] in expected.data
            value = follow(expected.data if inside else case, self._path)
        except ValueError as error:
            return f"keywords of the case: {error}"
        found = value.split(",") if isinstance(value, str) else value
        if not isinstance(found, list) or not all(isinstance(one, str) for one in found):
            return "keywords of the case are neither a text nor a list of texts"
        return found

    def _searched(self, text: str) -> str:
        """Return a text in which a normalised keyword is a substring exactly if the text contains it."""
        text = normalized(text, case_sensitive=self._case_sensitive, keep_space=self._keep_space)
        return text if self._partial else _BORDER.sub("\x00", text)
