"""The similarity of two texts by their letters or words, from 0 to 1; equal texts always score 1.

It ignores the meaning of words: a missing "not" hardly changes it.
"""

import re
from collections import Counter
from collections.abc import Callable, Mapping
from itertools import takewhile
from typing import Final
from unicodedata import normalize

from evaltap.evaluator.scoring.criteria.content.bit_parallel import edit_distance, jaro
from evaltap.evaluator.scoring.criteria.content.tokenizers import cjk

Measure = Callable[[str, str], float]

BOOSTED_ABOVE: Final = 0.7
BOOST: Final = 0.1
MOST_BOOSTS: Final = 4

_SPACE = re.compile(r"\s+")


def dice(one: str, other: str) -> float:
    """Return the Sorensen-Dice coefficient of pairs of adjacent letters: 2 x common / (total of both)."""
    if one == other:
        return 1.0
    left, right = _pairs(one), _pairs(other)
    total = left.total() + right.total()
    return 2 * (left & right).total() / total if total else 0.0


def levenshtein(one: str, other: str) -> float:
    """Return 1 - edit distance / length of the longer text."""
    longer = max(len(one), len(other))
    return 1.0 if one == other else (longer - edit_distance(one, other)) / longer


def jaro_winkler(one: str, other: str) -> float:
    """Return the Jaro similarity; above 0.7, up to four equal first letters increase it."""
    if one == other:
        return 1.0
    similarity = jaro(one, other)
    if similarity > BOOSTED_ABOVE:
        first = zip(one[:MOST_BOOSTS], other, strict=False)
        prefix = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], first))
        similarity += prefix * BOOST * (1.0 - similarity)
    return similarity


def rouge1(one: str, other: str) -> float:
    """Return the F1 of the words in common, repetitions counted, as ADK's `response_match_score` does."""
    if one == other:
        return 1.0
    left, right = (Counter(cjk(text, use_stemmer=True)) for text in (one, other))
    total = left.total() + right.total()
    return 2 * (left & right).total() / total if total else 0.0


MEASURES: Final[Mapping[str, Measure]] = {
    "dice": dice,
    "jaro_winkler": jaro_winkler,
    "levenshtein": levenshtein,
    "rouge1": rouge1,
}
"""The measures by the name of their algorithm."""


def normalized(text: str, *, case_sensitive: bool, keep_space: bool) -> str:
    """Return the text in the form in which it is compared; é is one letter, however it is encoded."""
    text = normalize("NFC", text).replace("\u2019", "'")
    if not keep_space:
        text = _SPACE.sub(" ", text).strip()
    return text if case_sensitive else text.casefold()


def _pairs(text: str) -> Counter[str]:
    return Counter(map(str.__add__, text, text[1:]))
