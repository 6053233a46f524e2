"""Maximum bipartite matching that reports which left vertices cannot be covered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matching:
    """A maximum matching: the unmatched vertices of both sides, in ascending order."""

    uncovered_left: list[int]
    free_right: list[int]


def match_left(
    left: int,
    right: int,
    neighbours: Callable[[int], Sequence[int]],
    *,
    candidates: Sequence[Sequence[int]] = (),
) -> Matching:
    """Match as many of the `left` vertices as possible, each with a different vertex on the right.

    Kuhn's algorithm with the left vertices in ascending order, so that the uncovered vertices do not depend
    on how ties between edges are broken.  `neighbours(i)` returns the right vertices with an edge to `i`; it
    is called at most once per vertex, and only if needed.  `candidates[i]` may contain some of them; a free
    candidate is used without calling `neighbours`.
    """
    owner = [-1] * right
    partner = [-1] * left
    known: list[Sequence[int] | None] = [None] * left
    uncovered = []
    for root in range(left):
        for sure in candidates[root] if candidates else ():
            if owner[sure] < 0:
                owner[sure], partner[root] = root, sure
                break
        else:
            if not _augment(root, owner, partner, known, neighbours):
                uncovered.append(root)
    return Matching(uncovered, [vertex for vertex, left_of in enumerate(owner) if left_of < 0])


def _augment(
    root: int,
    owner: list[int],
    partner: list[int],
    known: list[Sequence[int] | None],
    neighbours: Callable[[int], Sequence[int]],
) -> bool:
    """Find a shortest augmenting path from `root` and flip it; breadth first, so without recursion."""
    reached_from: dict[int, int] = {}
    queue = [root]
    for one in queue:
        edges = known[one]
        if edges is None:
            edges = known[one] = neighbours(one)
        for other in edges:
            if other in reached_from:
                continue
            reached_from[other] = one
            if owner[other] < 0:
                _flip(root, other, reached_from, owner, partner)
                return True
            queue.append(owner[other])
    return False


def _flip(
    root: int, other: int, reached_from: dict[int, int], owner: list[int], partner: list[int]
) -> None:
    """Give each vertex on the path back to `root` the partner through which it was reached."""
    while True:
        one = reached_from[other]
        previous = partner[one]
        owner[other], partner[one] = one, other
        if one == root:
            return
        other = previous
