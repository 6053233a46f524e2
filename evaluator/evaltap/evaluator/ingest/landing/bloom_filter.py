"""A Bloom filter of the cases in the store, so that most new cases need no query.

Most records belong to a case that the store does not know.  A query would read the names of all cases, whose
number grows every day.  The filter answers "no" or "perhaps" without one, in 16 MB for any number of cases.
Up to ten million cases, one "perhaps" in five hundred is wrong and merely costs the query.
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
        """Add a name."""
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
