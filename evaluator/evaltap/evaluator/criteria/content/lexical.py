"""Similarity of two texts by their letters, from 0 to 1; two equal texts are always 1.

None of it knows what words mean: a missing "not" hardly shows.
"""

import re
from collections import Counter
from collections.abc import Callable

Measure = Callable[[str, str], float]

_SPACE = re.compile(r"\s+")


def measure_of(algorithm: str) -> Measure | None:
    """Return the measure of that name, None when there is none."""
    if algorithm == "dice":
        return dice
    if algorithm not in ("jaro_winkler", "levenshtein"):
        return None
    from rapidfuzz.distance import JaroWinkler, Levenshtein

    chosen = JaroWinkler if algorithm == "jaro_winkler" else Levenshtein

    def measure(one: str, other: str) -> float:
        return 1.0 if one == other else chosen.normalized_similarity(one, other)

    return measure


def dice(one: str, other: str) -> float:
    """Return the Sorensen-Dice coefficient of neighbouring letters: 2 x common / (all of both)."""
    if one == other:
        return 1.0
    left, right = _pairs(one), _pairs(other)
    total = left.total() + right.total()
    return 2 * (left & right).total() / total if total else 0.0


def normalized(text: str, *, case_sensitive: bool, keep_space: bool) -> str:
    """Return the text as it is compared."""
    if not keep_space:
        text = _SPACE.sub(" ", text).strip()
    return text if case_sensitive else text.casefold()


def _pairs(text: str) -> Counter[str]:
    return Counter(map(str.__add__, text, text[1:]))
