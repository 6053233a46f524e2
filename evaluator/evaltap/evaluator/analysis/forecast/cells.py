"""Cells: turns that are alike before the new agent does anything, with enough evidence in each."""

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

ENOUGH_SESSIONS: Final = 10
"""The number of sessions with a new verdict that a cell needs."""

Key: TypeAlias = tuple[str | int, ...]
"""What turns have in common, the most important first."""


@dataclass(frozen=True, slots=True)
class _Group:
    keys: tuple[Key, ...]
    """Sorted; the first is its name."""
    sessions: frozenset[str]

    @property
    def rank(self) -> tuple[int, Key]:
        return len(self.sessions), self.keys[0]


def cells_of(sessions: Mapping[Key, Collection[str]]) -> dict[Key, int]:
    """Return the number of the cell of each key, given the sessions with a new verdict under it.

    Keys of equal length form a tree.  From the leaves upwards, the group with the fewest sessions of its
    parent is joined with the next smallest until all have enough; a group that stays alone and small moves
    up a level.
    """
    groups = [_Group((key,), frozenset(found)) for key, found in sorted(sessions.items())]
    merged = sorted(_merged(groups, 0), key=lambda one: one.keys[0])
    return {key: number for number, group in enumerate(merged) for key in group.keys}


def _merged(groups: Sequence[_Group], depth: int) -> Sequence[_Group]:
    """Return the groups below a node of the tree, whose keys agree in their first `depth` parts."""
    if len(groups) < 2:
        return groups
    children: defaultdict[str | int, list[_Group]] = defaultdict(list)
    for one in groups:
        children[one.keys[0][depth]].append(one)
    found = [one for child in children.values() for one in _merged(child, depth + 1)]
    while len(found) > 1:
        found.sort(key=lambda one: one.rank)
        first, second, *rest = found
        if len(first.sessions) >= ENOUGH_SESSIONS:
            break
        joined = _Group(tuple(sorted(first.keys + second.keys)), first.sessions | second.sessions)
        found = [joined, *rest]
    return found
