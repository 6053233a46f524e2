"""Maximum bipartite matching that tells which left vertices cannot be covered."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Matching:
    """A maximum matching: who is left over on either side, in ascending order."""

    uncovered_left: list[int]
    free_right: list[int]


def match_left(
    left: int,
    right: int,
    edge: Callable[[int, int], bool],
    *,
    candidates: Sequence[Sequence[int]] = (),
) -> Matching:
    """Cover as many of the `left` vertices as possible, each by a vertex of its own on the right.

    Kuhn's algorithm with the left vertices in ascending order, so that the uncovered ones are the
    same whichever way ties between edges fall.  `candidates[i]` may name right vertices known to
    have an edge to `i`; a free one is taken without asking `edge`.  An edge is asked for at most
    once.
    """
    owner = [-1] * right
    partner = [-1] * left
    known: dict[int, bool] = {}

    def has_edge(one: int, other: int) -> bool:
        key = one * right + other
        answer = known.get(key)
        if answer is None:
            answer = known[key] = edge(one, other)
        return answer

    uncovered = []
    for root in range(left):
        for sure in candidates[root] if candidates else ():
            if owner[sure] < 0:
                owner[sure], partner[root] = root, sure
                break
        else:
            if not _augment(root, owner, partner, has_edge):
                uncovered.append(root)
    return Matching(uncovered, [vertex for vertex, left_of in enumerate(owner) if left_of < 0])


def _augment(
    root: int, owner: list[int], partner: list[int], has_edge: Callable[[int, int], bool]
) -> bool:
    """Find a shortest augmenting path from `root` and flip it; breadth first, so never too deep."""
    reached_from: dict[int, int] = {}
    queue = [root]
    for one in queue:
        for other in range(len(owner)):
            if other in reached_from or not has_edge(one, other):
                continue
            reached_from[other] = one
            if owner[other] >= 0:
                queue.append(owner[other])
                continue
            while True:
                one = reached_from[other]
                previous = partner[one]
                owner[other], partner[one] = one, other
                if one == root:
                    return True
                other = previous
    return False
