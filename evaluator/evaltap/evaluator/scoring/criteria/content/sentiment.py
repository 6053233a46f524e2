"""The tone of an English text: by nltk's VADER rules and lexicon, or by the words of AFINN alone.

nltk maintains VADER's rules but would download the lexicon; the file in this package is a copy of it.
"""

import re
from collections.abc import Callable, Mapping
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, distribution
from importlib.resources import files
from typing import Any, Final, NamedTuple

from evaltap.evaluator.scoring.contract.errors import MetricError
from evaltap.schemas.formats.criteria import SentimentCriterion
from evaltap.schemas.text import did_you_mean_one_of

CATEGORIES: Final = ("positive", "neutral", "negative")
NEUTRAL_WITHIN: Final = 0.05
"""A compound value closer to 0 than this is neutral; the bound that VADER's authors recommend."""

_AFINN_MOST: Final = 5
"""The highest valence of a word in AFINN."""


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
    found = _analyzer().polarity_scores(text)
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


def _for_each_word(valence: float, text: str) -> float:
    words = sum(len(word) > 1 or word.isalnum() for word in text.split())
    return valence / words if words else 0.0


def _tone_by_list(valences: Mapping[str, int], pattern: re.Pattern[str], text: str) -> Tone:
    raw = float(sum(valences[found] for found in pattern.findall(" ".join(text.lower().split()))))
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
    longest_first = sorted(valences, key=len, reverse=True)
    return valences, re.compile(rf"\b(?:{'|'.join(map(re.escape, longest_first))})\b")


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
