"""Group near-duplicate texts around a medoid: every member is similar to the medoid itself.

The text with the most neighbours forms a group with them; this is repeated with the remaining texts.  Ties
are broken by the larger sum of similarities, then by the smaller index.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

import numpy as np

from evaltap.evaluator.curation.texts import Numbers, Places, SimilarTexts

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
    queue = alike.ranked() if exact else alike.ranked_among(_text_sample(texts))
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
    """The similarity of texts, by letters or by meaning."""

    index: SimilarTexts
    weights: Numbers
    radius: float
    vectors: Numbers | None
    cosine: float

    def to(self, place: int) -> Numbers:
        """Return the similarity of all texts to one; texts with similar meaning have at least the radius."""
        similar = self.index.to(place)
        similar[place] = 1.0
        if self.vectors is not None:
            near = self.vectors @ self.vectors[place] >= self.cosine
            similar = np.where(near, np.maximum(similar, self.radius), similar)
        return similar

    def rank(self, similar: Numbers, found: Places) -> tuple[float, float]:
        """Return the sort key of medoids, the best first: neighbours, then the sum of similarities."""
        weights = self.weights[found]
        return -float(weights.sum()), -round(float((similar[found] * weights).sum()), 9)

    def ranked(self) -> list[Rank]:
        ranks: list[Rank] = []
        for place in range(self.index.count):
            similar = self.to(place)
            ranks.append((*self.rank(similar, np.flatnonzero(similar >= self.radius)), place))
        heapify(ranks)
        return ranks

    def ranked_among(self, some: "_TextSample") -> list[Rank]:
        """Rank by the neighbours in a sample, which suffices to find the largest groups among many texts."""
        ranks: list[Rank] = []
        weights = self.weights[some.places]
        for place, text in enumerate(some.texts):
            similar = some.index.to_text(text)
            if self.vectors is not None:
                near = self.vectors[some.places] @ self.vectors[place] >= self.cosine
                similar = np.where(near, np.maximum(similar, self.radius), similar)
            found = np.flatnonzero(similar >= self.radius)
            counted = weights[found]
            total = -round(float((similar[found] * counted).sum()), 9)
            ranks.append((-float(counted.sum()), total, place))
        heapify(ranks)
        return ranks


@dataclass(frozen=True, slots=True)
class _TextSample:
    """An evenly spaced sample of many texts, with its own index."""

    texts: Sequence[str]
    places: Places
    index: SimilarTexts


def _text_sample(texts: Sequence[str]) -> _TextSample:
    step = max(1, len(texts) // COUNTED_AMONG)
    places = range(0, len(texts), step)
    return _TextSample(texts, np.array(places), SimilarTexts([texts[place] for place in places]))
