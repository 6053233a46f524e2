"""The words of a text, for ROUGE: of ASCII letters as Google's `rouge-score` finds them, or of any script."""

import re
import unicodedata
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from evaltap.evaluator.scoring.contract.comparisons import Tokenizer
from evaltap.evaluator.scoring.criteria.content.text import lower

_ASCII_WORD: Final = re.compile(r"[a-z0-9]+")
_OTHER_SCRIPT: Final = re.compile(r"[^\W\d_A-Za-z\u00aa-\u02ff\u1e00-\u1eff]")
"""A letter of another script than Latin."""
_CHINESE_JAPANESE: Final = "\u3040-\u30ff\u4e00-\u9fff"
_THAI_LAO_BURMESE_KHMER: Final = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
_APART: Final = re.compile(f"[{_CHINESE_JAPANESE}\uac00-\ud7af]")
_MARKED: Final = re.compile(f"[{_THAI_LAO_BURMESE_KHMER}]")
WITHOUT_SPACES: Final = _CHINESE_JAPANESE + _THAI_LAO_BURMESE_KHMER
"""The letters of scripts without spaces, for a set in a pattern: a word may begin and end at each of them."""
MARKS: Final = (
    r"\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    r"\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0900-\u0963\u0966-\u0dff\u0f71-\u0f84"
)
"""Accents, vowel signs and what else is part of a word although `\\w` lacks it, for a set in a pattern: of
Latin, Cyrillic, Hebrew and Arabic, and all that is not punctuation in the scripts of India and Tibet."""
IN_A_WORD: Final = rf"(?:[^\W{WITHOUT_SPACES}]|[{MARKS}])"
"""The pattern of a character that only occurs within words between spaces or punctuation."""


def ascii_words(text: str, *, use_stemmer: bool = False) -> list[str]:
    """Return the runs of ASCII letters and digits, lower-cased; with stemming, those of four and more."""
    words = _ASCII_WORD.findall(lower(text))
    return [stem(word) if len(word) > 3 else word for word in words] if use_stemmer else words


def unicode_words(text: str) -> list[str]:
    """Return the runs of letters and digits of any script, lower-cased, in compatibility form (NFKC)."""
    return _spaced(text, apart=False)


def cjk(text: str, *, use_stemmer: bool = False) -> list[str]:
    """Return words as `unicode_words` does, but each letter of scripts that are written without spaces.

    These are Chinese, Japanese and Korean, and Thai, Lao, Burmese and Khmer, whose marks stay with a letter.
    """
    words = _spaced(text, apart=True)
    if not use_stemmer:
        return words
    return [
        part
        for word in words
        for part in (ascii_words(word, use_stemmer=True) if word.isascii() else [word])
    ]


def has_other_script(text: str) -> bool:
    """Return whether a text has letters that are not Latin."""
    return not text.isascii() and _OTHER_SCRIPT.search(text) is not None


TOKENIZERS: Final[Mapping[str, Tokenizer]] = {"cjk": cjk, "unicode_words": unicode_words}
"""The tokenizers that a criterion may name, by name."""


@lru_cache(maxsize=65536)
def stem(word: str) -> str:
    """Return the stem of a lower-case word: Porter's algorithm with NLTK's extensions."""
    stemmed: str = _stemmer().stem(word)
    return stemmed


@lru_cache(maxsize=1)
def _stemmer():  # type: ignore[no-untyped-def]  # nltk has no types
    from nltk.stem.porter import PorterStemmer

    return PorterStemmer(PorterStemmer.NLTK_EXTENSIONS)


def _spaced(text: str, *, apart: bool) -> list[str]:
    letters = unicodedata.normalize("NFKC", text).lower()
    return "".join(_part(letter, apart=apart) for letter in letters).split()


def _part(letter: str, *, apart: bool) -> str:
    """Return a letter with space where a word begins or ends; marks stay with the letter before them."""
    if apart and _APART.match(letter):
        return f" {letter} "
    if unicodedata.category(letter).startswith("M"):
        return letter
    if apart and _MARKED.match(letter):
        return f" {letter}"
    return letter if letter.isalnum() else " "
