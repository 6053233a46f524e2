"""Sample whole sessions by the hash of their id: no state, the same answer in every process."""

import hashlib

_DOMAIN = b"evaltap session sample v1\0"
_BITS = 53
"""Bits of the hash that are used: as many as a float holds exactly."""


def position(session_id: str) -> float:
    """Return where a session lies in [0, 1), evenly spread over sessions."""
    digest = hashlib.sha256(_DOMAIN + session_id.encode("utf-8", "replace")).digest()
    return (int.from_bytes(digest[:8]) >> (64 - _BITS)) / (1 << _BITS)


def is_sampled(session_id: str, rate: float) -> bool:
    """Return whether a session is in the sample; a larger rate keeps all that a smaller one had."""
    return rate >= 1 or position(session_id) < rate
