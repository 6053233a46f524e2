"""Compare texts: normal form, shingles, and Jaccard similarity with an inverted index.

The comparison is exact: the index finds every text that shares a shingle.  Unlike MinHash, no pair is missed,
and no candidate must be verified.  Needs numpy.
"""

import re
import unicodedata
from collections.abc import Sequence
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

SHINGLE: Final = 4
"""The number of characters in a shingle."""
_NOT_WORDS: Final = re.compile(r"[\W_]+")
_DIGIT: Final = re.compile(r"\d")

Places: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]


def normal(text: str) -> str:
    """Return the form of a text that is compared: NFKC, case-folded, words with a digit as 0, no punctuation.

    A space is added at both ends, so that the beginnings and ends of words count.
    """
    words = []
    for word in unicodedata.normalize("NFKC", text).casefold().split():
        if _DIGIT.search(word):
            words.append("0")
        elif kept := _NOT_WORDS.sub(" ", word).strip():
            words.append(kept)
    return f" {' '.join(words)} "


def shingles(text: str) -> set[str]:
    """Return the shingles of a normalised text; a short text is a single shingle."""
    if len(text) <= SHINGLE:
        return {text}
    return {text[at : at + SHINGLE] for at in range(len(text) - SHINGLE + 1)}


class SimilarTexts:
    """Normalised texts as sets of shingles; finds the texts that are similar to a given one."""

    def __init__(self, texts: Sequence[str]) -> None:
        known: dict[str, int] = {}
        parts = [
            np.fromiter(
                (known.setdefault(part, len(known)) for part in sorted(shingles(text))), np.int64
            )
            for text in texts
        ]
        self.count = len(texts)
        self._known = known
        self._parts = parts
        self._sizes = np.array([len(part) for part in parts], dtype=np.int64)
        owners = np.repeat(np.arange(self.count), self._sizes)
        whole = np.concatenate(parts) if parts else np.zeros(0, np.int64)
        order = np.argsort(whole, kind="stable")
        self._owners = owners[order].astype(np.int32)
        self._starts = np.searchsorted(whole[order], np.arange(len(known) + 1))

    @property
    def work(self) -> int:
        """The number of index entries that a query for every text would read in total."""
        return int((np.diff(self._starts).astype(np.float64) ** 2).sum())

    def to(self, place: int) -> Numbers:
        """Return the similarity of every text to the text at an index."""
        return self._similar(self._parts[place], int(self._sizes[place]))

    def to_text(self, text: str) -> Numbers:
        """Return the similarity of every text to a text that need not be among them."""
        parts = shingles(text)
        there = np.array([self._known[part] for part in parts if part in self._known], np.int64)
        return self._similar(there, len(parts))

    def _similar(self, parts: Places, size: int) -> Numbers:
        found = [self._owners[self._starts[part] : self._starts[part + 1]] for part in parts]
        if not found:
            return np.zeros(self.count)
        shared = np.bincount(np.concatenate(found), minlength=self.count)
        similar: Numbers = shared / (self._sizes + size - shared)
        return similar
