"""The tone of an English text by the VADER rules of nltk and the VADER lexicon, kept beside this.

nltk keeps the rules up to date but would download the lexicon; the file here is a copy of it.
"""

from functools import cache
from importlib.resources import files
from typing import Any, Final, NamedTuple

CATEGORIES: Final = ("positive", "neutral", "negative")
NEUTRAL_WITHIN: Final = 0.05
"""A compound value nearer to 0 than this is neutral; the bound that VADER's authors give."""


class Tone(NamedTuple):
    """What the words of a text add up to."""

    raw: float
    """The sum of the valences, each from about -4 to 4."""
    comparative: float
    """The sum divided by the number of words; 0 for a text without words."""
    compound: float
    """The sum brought into -1 to 1."""


def tone_of(text: str) -> Tone:
    """Return the tone of a text; words that the lexicon lacks count as neutral."""
    found = _analyzer().polarity_scores(text)
    words = found["words"]
    return Tone(found["raw"], found["raw"] / words if words else 0.0, found["compound"])


def category_of(tone: Tone) -> str:
    """Return `positive`, `neutral` or `negative`."""
    if abs(tone.compound) < NEUTRAL_WITHIN:
        return "neutral"
    return "positive" if tone.compound > 0 else "negative"


@cache
def _analyzer() -> Any:  # nltk has no types
    from nltk.sentiment.vader import SentimentIntensityAnalyzer, VaderConstants

    class Analyzer(SentimentIntensityAnalyzer):  # type: ignore[misc]  # nltk has no types
        def __init__(self) -> None:
            # The base would look for an nltk download; the attributes are all that it needs.
            lexicon = files("evaltap.evaluator").joinpath("lexicon/vader_lexicon.tsv")
            self.lexicon_file = lexicon.read_text("utf-8").strip("\n")
            self.lexicon = self.make_lex_dict()
            self.constants = VaderConstants()

        def score_valence(self, sentiments: list[float], text: str) -> dict[str, float]:
            found: dict[str, float] = super().score_valence(sentiments, text)
            return found | {"raw": float(sum(sentiments)), "words": len(sentiments)}

    return Analyzer()
