"""Compare two sequences with integers that hold one bit for each item of the first sequence.

Each item of the second sequence then takes a few operations on whole integers instead of a loop (Hyyro 2003,
2004).
"""

from collections.abc import Sequence


def common_length(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the length of the longest common subsequence.

    Bit i of `row` is zero if the i-th item of `one` lengthens the subsequence.
    """
    places = _places(one)
    everywhere = (1 << len(one)) - 1
    row = everywhere
    for item in other:
        hits = row & places.get(item, 0)
        row = ((row + hits) | (row - hits)) & everywhere
    return len(one) - row.bit_count()


def edit_distance(one: Sequence[str], other: Sequence[str]) -> int:
    """Return the Levenshtein distance: insertions, deletions and substitutions.

    Bit i of `up` or `down` is set if the distance increases or decreases from the first i items of the longer
    sequence to the first i + 1.
    """
    short, long = sorted((one, other), key=len)
    places = _places(long)
    everywhere = (1 << len(long)) - 1
    up, down = everywhere, 0
    for item in short:
        hits = places.get(item, 0)
        diagonal = (((hits & up) + up) ^ up) | hits | down
        right = (down | (everywhere & ~(diagonal | up))) << 1 | 1
        left = (diagonal & up) << 1
        up = (left | ~(diagonal | right)) & everywhere
        down = diagonal & right & everywhere
    return len(short) + up.bit_count() - down.bit_count()


def jaro(one: Sequence[str], other: Sequence[str]) -> float:
    """Return the Jaro similarity, from the common items that are near each other and those out of order.

    Each item of `other` is paired with the first equal item of `one` that is near enough and still free.
    """
    reach = max(0, max(len(one), len(other)) // 2 - 1)
    window = (1 << (2 * reach + 1)) - 1
    places = _places(one)
    free = (1 << len(one)) - 1
    paired: list[str] = []
    for at, item in enumerate(other):
        near = window << (at - reach) if at >= reach else window >> (reach - at)
        if found := places.get(item, 0) & free & near:
            free ^= found & -found
            paired.append(item)
    if not paired:
        return 0.0
    bits = f"{free:0{len(one)}b}"[::-1]
    taken = (item for item, bit in zip(one, bits, strict=True) if bit == "0")
    moved = sum(ours != theirs for ours, theirs in zip(taken, paired, strict=True)) // 2
    count = len(paired)
    return (count / len(one) + count / len(other) + (count - moved) / count) / 3


def _places(items: Sequence[str]) -> dict[str, int]:
    places: dict[str, int] = {}
    for index, item in enumerate(items):
        places[item] = places.get(item, 0) | 1 << index
    return places
