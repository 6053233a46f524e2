"""The tone of an English text by nltk's VADER rules and the VADER lexicon stored in this package.

nltk maintains the rules but would download the lexicon; the file here is a copy of it.
"""

from functools import cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from evaltap.evaluator.scoring.criteria.content.vader import Analyzer

CATEGORIES: Final = ("positive", "neutral", "negative")
NEUTRAL_WITHIN: Final = 0.05
"""A compound value closer to 0 than this is neutral; the bound that VADER's authors recommend."""


class Tone(NamedTuple):
    """The total tone of the words of a text."""

    raw: float
    """The sum of the valences, each from about -4 to 4."""
    comparative: float
    """The sum divided by the number of words; 0 for a text without words."""
    compound: float
    """The sum normalized to -1 to 1."""


def tone_of(text: str) -> Tone:
    """Return the tone of a text; words missing from the lexicon count as neutral."""
    found = _analyzer().polarity_scores(text)
    words = found["words"]
    return Tone(found["raw"], found["raw"] / words if words else 0.0, found["compound"])


def category_of(tone: Tone) -> str:
    """Return `positive`, `neutral` or `negative`."""
    if abs(tone.compound) < NEUTRAL_WITHIN:
        return "neutral"
    return "positive" if tone.compound > 0 else "negative"


@cache
def _analyzer() -> "Analyzer":
    from evaltap.evaluator.scoring.criteria.content.vader import Analyzer

    return Analyzer()
