"""Detect the language of a text: by its script, then with py3langid if it is installed."""

import unicodedata
from collections import Counter
from functools import cache
from typing import Any, Final

from evaltap.schemas.installation import install_command

UNKNOWN: Final = "und"
FEWEST_LETTERS: Final = 20
"""Fewer letters of a script that several languages use are not classified."""
_SCRIPTS: Final = {
    "HIRAGANA": "ja",
    "KATAKANA": "ja",
    "HANGUL": "ko",
    "THAI": "th",
    "HEBREW": "he",
    "GREEK": "el",
    "ARMENIAN": "hy",
    "GEORGIAN": "ka",
    "TAMIL": "ta",
    "BENGALI": "bn",
}
"""Scripts that a single language uses."""


def language_of(text: str) -> str:
    """Return the ISO 639-1 code of a text's language, or `und` if it is unknown."""
    if not (letters := [letter for letter in text if letter.isalpha()]):
        return UNKNOWN
    scripts: Counter[str] = Counter()
    for letter, n in Counter(letters[:500]).items():
        scripts[unicodedata.name(letter, "").partition(" ")[0]] += n
    for script, language in _SCRIPTS.items():
        if scripts[script] * 5 >= len(letters[:500]):
            return language
    if scripts["CJK"] * 2 > len(letters[:500]):
        return "zh"
    return _classified(text) if len(letters) >= FEWEST_LETTERS else UNKNOWN


def without_classifier() -> str:
    """Return what is unknown because py3langid is not installed; empty if it is."""
    if _classifier() is not None:
        return ""
    return f"languages that share a script are unknown; to tell them apart: {install_command('languages')}"


@cache
def _classifier() -> Any:  # a module without types, or None
    try:
        import py3langid
    except ImportError:
        return None
    return py3langid


def _classified(text: str) -> str:
    found = _classifier()
    return UNKNOWN if found is None else str(found.classify(text)[0])
