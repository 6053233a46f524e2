"""`sentiment_score` and `toxic_words`: one text of each turn, scored by word lists.

The tone is found by nltk's VADER rules and lexicon, or by the words of AFINN and the negations before them.
nltk would download the lexicon; the file in `criteria.content` is a copy of it.  `sentiment` and
`toxic_words` are the factories.
"""

import re
import string
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from math import isfinite
from typing import Any, Final, NamedTuple, cast, get_args

from evaltap.evaluator.cases.turn import Case, Turn
from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.evaluator.scoring.contract.turn_evaluator import (
    Finding,
    MissingEvidence,
    TurnEvaluator,
)
from evaltap.evaluator.scoring.contract.validation import require
from evaltap.evaluator.scoring.criteria.content.lexical import normalized
from evaltap.evaluator.scoring.criteria.content.tokenizers import IN_A_WORD, WITHOUT_SPACES
from evaltap.evaluator.scoring.criteria.content.turn_text import TextAt, text_at
from evaltap.schemas.formats.criteria import SentimentCriterion
from evaltap.schemas.formats.metric import EvalMetric
from evaltap.schemas.text import did_you_mean_one_of

CATEGORIES: Final = ("positive", "neutral", "negative")
NEUTRAL_WITHIN: Final = 0.05
"""A compound value closer to 0 than this is neutral; the bound that VADER's authors recommend."""

_AFINN_MOST: Final = 5
"""The highest valence of a word in AFINN."""

_TYPEWRITTEN: Final = str.maketrans({"\u2019": "'", "\u2013": " ", "\u2014": " ", "\u2026": " "})
"""Apostrophes, dashes and dots as word lists know them."""
_AROUND_WORDS: Final = string.punctuation + "\u2018\u201c\u201d\u201e\u00ab\u00bb"
_LONGEST_EMOTICON: Final = 2
"""As in VADER itself: what has more characters without the marks around it is a word."""
_NEGATION: Final = (
    "not|non|cannot|[a-z]+n't|"
    "(?:ai|are|ca|could|did|does|do|had|has|have|is|should|was|were|wo|would)nt"
)
_LETTER: Final = r"[^\W_]"


class Tone(NamedTuple):
    """The total tone of the words of a text."""

    raw: float
    """The sum of the valences, each from about -4 to 4 (AFINN: -5 to 5)."""
    comparative: float
    """The sum divided by the number of words; 0 for a text without words."""
    compound: float
    """The sum normalized to -1 to 1 (AFINN: a fifth of `comparative`)."""


def lexicon(name: str) -> Callable[[str], Tone]:
    """Return the function that finds the tone of a text; raise MetricError for an unknown lexicon."""
    if name == "afinn":
        valences, pattern = _afinn()  # here, so that a missing list is an error of the metric
        return partial(_tone_by_list, valences, pattern)
    if name not in ("", "vader"):
        hint = did_you_mean_one_of(name, ("vader", "afinn"))
        raise MetricError(f"sentiment.lexicon is '{name}'; {hint}")
    return tone_of


def tone_of(text: str) -> Tone:
    """Return the tone of a text by VADER; words missing from the lexicon count as neutral."""
    words, marks = [], ""
    for token in text.translate(_TYPEWRITTEN).split():
        word = _bare(token)
        words.append(word)
        marks += "".join(token.split(word, 1))
    # Taken off the words, these still amplify; nltk takes no mark on its own for a word.
    loud = (mark for mark in marks if mark in "!?")
    found = _analyzer().polarity_scores(" ".join([*words, *loud]))
    return Tone(found["raw"], _for_each_word(found["raw"], text), found["compound"])


def limits_of(criterion: SentimentCriterion) -> tuple[float, float]:
    """Return the highest compound value that is negative, and the lowest that is positive."""
    low, high = criterion.negative_from, criterion.positive_from
    return -NEUTRAL_WITHIN if low is None else low, NEUTRAL_WITHIN if high is None else high


def category_of(tone: Tone, low: float, high: float) -> str:
    """Return `positive` from `high` upwards, `negative` from `low` downwards, otherwise `neutral`."""
    if tone.compound >= high:
        return "positive"
    return "negative" if tone.compound <= low else "neutral"


def _bare(token: str) -> str:
    """Return a word without the marks around it, which nltk would only know one at a time."""
    word = token.strip(_AROUND_WORDS)
    return word if len(word) > _LONGEST_EMOTICON else token


def _for_each_word(valence: float, text: str) -> float:
    words = sum(len(word) > 1 or word.isalnum() for word in text.split())
    return valence / words if words else 0.0


def _tone_by_list(valences: Mapping[str, int], pattern: re.Pattern[str], text: str) -> Tone:
    plain = " ".join(text.translate(_TYPEWRITTEN).lower().split())
    found = pattern.findall(plain)
    raw = float(sum(-valences[word] if negation else valences[word] for negation, word in found))
    comparative = _for_each_word(raw, text)
    return Tone(raw, comparative, min(max(comparative / _AFINN_MOST, -1.0), 1.0))


@cache
def _afinn() -> tuple[Mapping[str, int], re.Pattern[str]]:
    """Read AFINN's English list from the package afinn, without importing its code."""
    try:
        text = distribution("afinn").read_text("../afinn/data/AFINN-en-165.txt")
    except PackageNotFoundError:
        text = None
    if text is None:
        raise MetricError(
            "sentiment.lexicon afinn needs the word list of the package afinn; pip install afinn"
        )
    lines = (line.split("\t") for line in text.splitlines() if line.strip())
    valences = {word: int(valence) for word, valence in lines}
    longest_first = "|".join(map(re.escape, sorted(valences, key=len, reverse=True)))
    # "won't" is not "won", and "risk-free" no "risk".  "not good" is in the list, "not happy" is not.
    return valences, re.compile(
        rf"(?<!{_LETTER})(?<!{_LETTER}['-])(?:({_NEGATION}) [*_\"'(]*)??({longest_first})"
        rf"(?!{_LETTER})(?!['-]{_LETTER})"
    )


@cache
def _analyzer() -> Any:  # nltk has no types
    from nltk.sentiment.vader import SentimentIntensityAnalyzer, VaderConstants  # takes a second

    class Analyzer(SentimentIntensityAnalyzer):  # type: ignore[misc]  # as above
        """Also returns the sum of the valences."""

        def __init__(self) -> None:
            # The base class would search for an nltk download; these attributes are all that it needs.
            package = files("evaltap.evaluator.scoring.criteria.content")
            self.lexicon_file = (package / "lexicon/vader_lexicon.tsv").read_text("utf-8").strip()
            self.lexicon = self.make_lex_dict()
            self.constants = VaderConstants()

        def score_valence(self, sentiments: list[float], text: str) -> dict[str, float]:
            found: dict[str, float] = super().score_valence(sentiments, text)
            return found | {"raw": float(sum(sentiments))}

    return Analyzer()


_WITHOUT_SPACES: Final = re.compile(f"[{WITHOUT_SPACES}]")


class TextEvaluator(TurnEvaluator):
    """Scores one text of each turn with a function of that text."""

    version = "4"

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
    if (make := _MODES.get(mode)) is None:
        raise MetricError(f"sentiment.mode is '{mode}'; {did_you_mean_one_of(mode, _MODES)}")
    _check_sentiment(criterion, mode)
    find = make(criterion)
    target = text_at(criterion.target, "sentiment.target")
    tone = lexicon(criterion.lexicon)
    return TextEvaluator("sentiment_score", metric, target, lambda text: find(tone(text)))


def toxic_words(metric: EvalMetric) -> TextEvaluator:
    """`toxic_words`: 1 if the text contains none of the listed words, otherwise 0."""
    criterion = require(metric, lambda given: given.toxic_words, "toxicWords", closed=True)
    plain = partial(normalized, case_sensitive=criterion.case_sensitive, keep_space=False)
    words = [plain(word) for word in criterion.values if word.strip()]
    if not words and not criterion.languages:
        raise MetricError("toxicWords has neither values nor languages; give at least one")
    bordered = re.escape if criterion.partial else _bordered
    joined = "|".join(map(bordered, sorted(words, key=len, reverse=True)))
    pattern = re.compile(joined)
    listed = _listed_words(criterion.languages, criterion.allowed) if criterion.languages else None

    def find(text: str) -> Finding:
        found = {match[0] for match in pattern.finditer(plain(text))} if words else set()
        if listed is not None:
            text = normalized(text, case_sensitive=True, keep_space=False)
            found |= _find_listed(listed, text)
        reason = f"found {', '.join(sorted(found))}" if found else ""
        return Finding(float(not found), reason, value=len(found))

    return TextEvaluator(
        "toxic_words", metric, text_at(criterion.target, "toxicWords.target"), find
    )


def _bordered(words: str) -> str:
    """Return the pattern of words that are not part of longer ones."""
    before = "" if _WITHOUT_SPACES.match(words[0]) else f"(?<!{IN_A_WORD})"
    after = "" if _WITHOUT_SPACES.match(words[-1]) else f"(?!{IN_A_WORD})"
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
    if unknown := [language for language in languages if language not in known]:
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
