"""A Bloom filter of the cases in the store, so that most new cases need no query.

Most records bring a case that the store does not know.  Looking it up in the store would read the
names of all cases, more of them every day; the filter says "never" or "perhaps" at once, in 16 MB
whatever the number of cases.  Up to ten million cases one "perhaps" in five hundred is wrong, and only
costs the query.
"""

from collections.abc import Hashable
from typing import Final

_BITS: Final = 1 << 27
_PROBES: Final = 4


class BloomFilter:
    """A set of names with false positives and no false negatives."""

    def __init__(self) -> None:
        self._bits = bytearray(_BITS >> 3)

    def add(self, name: Hashable) -> None:
        """Note a name."""
        first, step = _hashes(name)
        for number in range(_PROBES):
            place = (first + number * step) & (_BITS - 1)
            self._bits[place >> 3] |= 1 << (place & 7)

    def __contains__(self, name: Hashable) -> bool:
        first, step = _hashes(name)
        for number in range(_PROBES):
            place = (first + number * step) & (_BITS - 1)
            if not self._bits[place >> 3] & 1 << (place & 7):
                return False
        return True


def _hashes(name: Hashable) -> tuple[int, int]:
    value = hash(name)
    return value, value >> 29 | 1
