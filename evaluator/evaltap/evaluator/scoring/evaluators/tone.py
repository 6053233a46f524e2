"""`sentiment_score` and `toxic_words`: one text of each turn, scored by word lists.

Each public function here is the factory of one evaluator.
"""

import re
from collections.abc import Callable, Sequence
from functools import partial
from math import isfinite
from typing import Any, Final, cast, get_args

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    Finding,
    MissingEvidence,
    TurnEvaluator,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.lexical import normalized
from evaltap.evaluator.scoring.criteria.content.sentiment import (
    CATEGORIES,
    Tone,
    category_of,
    lexicon,
    limits_of,
)
from evaltap.evaluator.scoring.criteria.content.tokenizers import WITHOUT_SPACES
from evaltap.evaluator.scoring.criteria.content.turn_text import TextAt, text_at
from evaltap.schemas.formats.criteria import SentimentCriterion
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import did_you_mean_one_of

_WITHOUT_SPACES: Final = re.compile(f"[{WITHOUT_SPACES}]")
_IN_A_WORD: Final = rf"[^\W{WITHOUT_SPACES}]"


class TextEvaluator(TurnEvaluator):
    """Scores one text of each turn with a function of that text."""

    version = "3"

    def __init__(
        self, name: str, metric: EvalMetric, target: TextAt, find: Callable[[str], Finding]
    ) -> None:
        self.name = name
        self.needs = target.needs
        super().__init__(metric)
        self._target = target
        self._find = find

    def score(self, turn: Turn, expected: Turn, case: Case) -> Finding | MissingEvidence:
        """Return the function's finding for the text."""
        text = self._target.of(turn, case)
        return text if isinstance(text, MissingEvidence) else self._find(text)


def sentiment(metric: EvalMetric) -> TextEvaluator:
    """`sentiment_score`: the tone of a text, as a score or compared with the desired tone."""
    criterion = require(metric, lambda given: given.sentiment, "sentiment", closed=True)
    mode = criterion.mode or "normalized"
    make = _MODES.get(mode)
    if make is None:
        raise MetricError(f"sentiment.mode is '{mode}'; {did_you_mean_one_of(mode, _MODES)}")
    _check_sentiment(criterion, mode)
    find = make(criterion)
    target = text_at(criterion.target, "sentiment.target")
    tone = lexicon(criterion.lexicon)
    return TextEvaluator("sentiment_score", metric, target, lambda text: find(tone(text)))


def toxic_words(metric: EvalMetric) -> TextEvaluator:
    """`toxic_words`: 1 if the text contains none of the listed words, otherwise 0."""
    criterion = require(metric, lambda given: given.toxic_words, "toxicWords", closed=True)
    plain = partial(normalized, case_sensitive=True, keep_space=False)
    words = [plain(word) for word in criterion.values if word.strip()]
    if not words and not criterion.languages:
        raise MetricError("toxicWords has neither values nor languages; give at least one")
    bordered = re.escape if criterion.partial else _bordered
    joined = "|".join(map(bordered, sorted(words, key=len, reverse=True)))
    flags = re.NOFLAG if criterion.case_sensitive else re.IGNORECASE
    pattern = re.compile(joined, flags)
    listed = _listed_words(criterion.languages, criterion.allowed) if criterion.languages else None

    def find(text: str) -> Finding:
        text = plain(text)
        found = {match[0] for match in pattern.finditer(text)} if words else set()
        if not criterion.case_sensitive:
            found = {word.lower() for word in found}
        if listed is not None:
            found |= _find_listed(listed, text)
        reason = f"found {', '.join(sorted(found))}" if found else ""
        return Finding(float(not found), reason, value=len(found))

    return TextEvaluator(
        "toxic_words", metric, text_at(criterion.target, "toxicWords.target"), find
    )


def _bordered(words: str) -> str:
    """Return the pattern of words that are not part of longer ones."""
    before = "" if _WITHOUT_SPACES.match(words[0]) else f"(?<!{_IN_A_WORD})"
    after = "" if _WITHOUT_SPACES.match(words[-1]) else f"(?!{_IN_A_WORD})"
    return before + re.escape(words) + after


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
    _check_categories(criterion, mode)


def _check_categories(criterion: SentimentCriterion, mode: str) -> None:
    if mode == "category":
        unknown = [name for name in criterion.categories if name not in CATEGORIES]
        if unknown or not criterion.categories:
            raise MetricError(
                f"sentiment.categories is {criterion.categories}; "
                f"expected one or more of {', '.join(CATEGORIES)}"
            )
        low, high = limits_of(criterion)
        if not -1 <= low < high <= 1:
            raise MetricError(
                f"sentiment.negativeFrom is {low:g} and positiveFrom is {high:g}; expected"
                " -1 <= negativeFrom < positiveFrom <= 1"
            )
    elif criterion.categories:
        raise MetricError(f"sentiment.categories are for mode category, not {mode}")
    elif (criterion.positive_from, criterion.negative_from) != (None, None):
        raise MetricError(
            f"sentiment.positiveFrom and negativeFrom are for mode category, not {mode}"
        )


def _normalized(_: SentimentCriterion) -> Callable[[Tone], Finding]:
    def find(tone: Tone) -> Finding:
        score = (tone.compound + 1) / 2
        return Finding(score, f"compound {tone.compound:+.3f}", value=tone.compound)

    return find


def _category(criterion: SentimentCriterion) -> Callable[[Tone], Finding]:
    low, high = limits_of(criterion)

    def find(tone: Tone) -> Finding:
        found = category_of(tone, low, high)
        reason = f"{found} (compound {tone.compound:+.3f})"
        return Finding(float(found in criterion.categories), reason, value=found)

    return find


def _within(
    title: str, amount: Callable[[Tone], float]
) -> Callable[[SentimentCriterion], Callable[[Tone], Finding]]:
    def make(criterion: SentimentCriterion) -> Callable[[Tone], Finding]:
        low = -float("inf") if criterion.min is None else criterion.min
        high = float("inf") if criterion.max is None else criterion.max

        def find(tone: Tone) -> Finding:
            value = amount(tone)
            reason = f"{title} {value:+.3f}, wanted {low:g} to {high:g}"
            return Finding(float(low <= value <= high), reason, value=value)

        return find

    return make


_MODES: Final[dict[str, Callable[[SentimentCriterion], Callable[[Tone], Finding]]]] = {
    "normalized": _normalized,
    "comparative": _within("valence per word", lambda tone: tone.comparative),
    "raw": _within("valence", lambda tone: tone.raw),
    "category": _category,
}


def _listed_words(
    languages: Sequence[str], allowed: Sequence[str]
) -> object:  # the package's Filter
    """Return a filter over the lists of some languages; raise MetricError if they are unavailable."""
    try:
        from glin_profanity import Filter, FilterConfig, Language
    except ImportError as error:
        raise MetricError(
            "toxicWords.languages needs the package glin-profanity; install evaltap[toxicity], "
            "or give your own list in values"
        ) from error
    known = get_args(Language)
    unknown = [language for language in languages if language not in known]
    if unknown:
        raise MetricError(
            f"toxicWords.languages has '{unknown[0]}'; expected some of {', '.join(sorted(known))}"
        )
    config: FilterConfig = {"languages": cast(Any, [*languages]), "ignore_words": [*allowed]}
    return Filter(config)


def _find_listed(words: Any, text: str) -> set[str]:  # the package's Filter
    """Return the listed words in a text, in lower case."""
    found = words.check_profanity(text)
    return (
        {word.lower() for word in found["profane_words"]} if found["contains_profanity"] else set()
    )
