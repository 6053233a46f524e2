"""Group near-duplicate texts around a medoid: every member is similar to the medoid itself.

The text with the most neighbours forms a group with them; this is repeated with the remaining texts.  Ties
are broken by the larger sum of similarities, then by the smaller index.
"""

import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt

SHINGLE: Final = 4
"""The number of characters in a shingle."""
_NOT_WORDS: Final = re.compile(r"[\W_]+")
_DIGIT: Final = re.compile(r"\d")
_SPACED: Final = re.compile(
    "[^\u0e00-\u0e4f\u0e80-\u0ecf\u1000-\u103f\u1780-\u17df\u3005-\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff"
    "\uf900-\ufaff\U00020000-\U0003ffff]+"
)
"""Text in scripts that separate words by spaces; Chinese, Japanese, Thai, Lao, Burmese and Khmer do not."""

Places: TypeAlias = npt.NDArray[np.int64]
Numbers: TypeAlias = npt.NDArray[np.float64]


def normal(text: str) -> str:
    """Return the form of a text that is compared: NFKC, case-folded, words with a digit as 0, no punctuation.

    A space is added at both ends, so that the beginnings and ends of words count.
    """
    words = []
    for word in unicodedata.normalize("NFKC", text).casefold().split():
        numbered = _SPACED.sub(_numbered, word) if _DIGIT.search(word) else word
        if kept := _NOT_WORDS.sub(" ", numbered).strip():
            words.append(kept)
    return f" {' '.join(words)} "


def _numbered(part: re.Match[str]) -> str:
    return "0" if _DIGIT.search(part[0]) else part[0]


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


RADIUS: Final = 0.5
"""The Jaccard similarity of character 4-grams at which two texts are near-duplicates."""
MOST_WORK: Final = 400_000_000
"""The number of index entries beyond which neighbours are counted in a sample of the texts only."""
COUNTED_AMONG: Final = 2_000
DOUBTFUL: Final = 0.1
"""Pairs within this distance below the radius are doubtful."""

Progress = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class TextGroup:
    """The indexes of similar texts, the medoid's first, with their similarity to it."""

    members: tuple[int, ...]
    similarities: tuple[float, ...]
    doubtful: int
    """The number of texts outside the group whose similarity to the medoid is just below the radius."""

    @property
    def medoid(self) -> int:
        """The index of the text to which the others are similar."""
        return self.members[0]


def near_groups(
    texts: Sequence[str],
    weights: Sequence[float],
    *,
    radius: float = RADIUS,
    vectors: Numbers | None = None,
    cosine: float = 1.0,
    progress: Progress = lambda _: None,
) -> list[TextGroup]:
    """Group distinct normalised texts, each with a weight.

    With `vectors` of length 1, texts with at least the given cosine are similar too.
    """
    if len(texts) == 1:
        return [TextGroup((0,), (1.0,), 0)]
    index = SimilarTexts(texts)
    alike = _Neighbours(index, np.asarray(weights, np.float64), radius, vectors, cosine)
    exact = index.work <= MOST_WORK
    if exact:
        queue = [(*alike.rank(alike.to(place)), place) for place in range(len(texts))]
    else:  # the neighbours in a sample suffice to find the largest groups among many texts
        queue = alike.ranked_in_sample(texts)
    heapify(queue)
    alive = np.ones(len(texts), dtype=bool)
    groups: list[TextGroup] = []
    done = 0
    while queue:
        *_, place = heappop(queue)
        if not alive[place]:
            continue
        similar = alike.to(place)
        found = np.flatnonzero(alive & (similar >= radius))
        now = alike.rank(similar, found)
        # Exact counts only decrease as groups are formed; counts in a sample are not a bound.
        if exact and queue and (*now, place) > (*queue[0],):
            heappush(queue, (*now, place))
            continue
        alive[found] = False
        doubtful = int(np.count_nonzero(alive & (similar >= radius - DOUBTFUL)))
        others = [int(one) for one in found if one != place]
        members = (int(place), *others)
        groups.append(TextGroup(members, tuple(float(similar[one]) for one in members), doubtful))
        done += len(members)
        progress(done)
    return groups


Rank = tuple[float, float, int]


@dataclass(frozen=True, slots=True)
class _Neighbours:
    index: SimilarTexts
    weights: Numbers
    radius: float
    vectors: Numbers | None
    cosine: float

    def to(self, place: int) -> Numbers:
        """Return the similarity of all texts to one; texts with similar meaning have at least the radius."""
        similar = self.index.to(place)
        similar[place] = 1.0
        return self._or_near(similar, place, self.vectors)

    def _or_near(self, similar: Numbers, place: int, vectors: Numbers | None) -> Numbers:
        if vectors is None or self.vectors is None:
            return similar
        near = vectors @ self.vectors[place] >= self.cosine
        return np.where(near, np.maximum(similar, self.radius), similar)

    def rank(self, similar: Numbers, found: Places | None = None) -> tuple[float, float]:
        """Return the sort key of medoids, the best first: neighbours, then the sum of similarities."""
        places = np.flatnonzero(similar >= self.radius) if found is None else found
        weights = self.weights[places]
        return -float(weights.sum()), -round(float((similar[places] * weights).sum()), 9)

    def ranked_in_sample(self, texts: Sequence[str]) -> list[Rank]:
        """Rank all texts by their neighbours in an evenly spaced sample, which has its own index."""
        places = np.arange(0, len(texts), max(1, len(texts) // COUNTED_AMONG))
        index = SimilarTexts([texts[int(place)] for place in places])
        vectors = None if self.vectors is None else self.vectors[places]
        sample = replace(self, weights=self.weights[places])
        near = (
            self._or_near(index.to_text(text), place, vectors) for place, text in enumerate(texts)
        )
        return [(*sample.rank(similar), place) for place, similar in enumerate(near)]
