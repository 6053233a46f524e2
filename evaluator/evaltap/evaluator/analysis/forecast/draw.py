"""Draw the recorded sessions that a replay repeats, so that they represent the traffic."""

import hashlib
from collections.abc import Mapping
from typing import Final

SEED: Final = "evaltap replay sample v1\0"
"""Not the recorder's: all recorded sessions have a small draw of that, and probabilities only multiply if the
draws are independent."""


def draw_sessions(recorded: Mapping[str, float], size: int) -> dict[str, float]:
    """Return the drawn sessions, about `size` of them, each with the probability p2 of being drawn.

    `recorded` are the probabilities p1 with which sessions were recorded.  p2 = min(1, c/p1), with c such
    that the expected number of sessions is `size`: as far as possible, all have the same p1·p2 (Poisson
    sampling; Särndal, Swensson and Wretman 1992, section 3.5).  A larger size contains a smaller one.
    """
    share = _share(sorted(recorded.values()), size)
    chances = {session: min(1.0, share / p1) for session, p1 in sorted(recorded.items())}
    return {session: p2 for session, p2 in chances.items() if draw_of(session) < p2}


def draw_of(session: str) -> float:
    """Return the draw of a session: 53 bits of a hash, scaled to [0, 1)."""
    digest = hashlib.sha256((SEED + session).encode("utf-8", "surrogatepass")).digest()
    return (int.from_bytes(digest[:8], "big") >> 11) / (1 << 53)


def _share(probabilities: list[float], size: int) -> float:
    """Return c, given the sorted p1: those up to c are certain, the others share the rest of the size."""
    if size >= len(probabilities):
        return 1.0
    inverse = sum(1 / p1 for p1 in probabilities)
    for certain, p1 in enumerate(probabilities):
        share = (size - certain) / inverse
        if share <= p1:
            return max(share, 0.0)
        inverse -= 1 / p1
    return 1.0  # where rounding leaves a little more than the last
