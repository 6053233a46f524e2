"""Merge two eval sets: the cases of both, and each side's edits relative to their common ancestor."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from evaltap.evaluator.cases.evalsets.content import content_hash
from evaltap.schemas.formats.case import CaseData


class Merged(NamedTuple):
    """The cases of both sets, and the ids that both sides changed differently."""

    cases: list[CaseData]
    conflicts: list[str]
    same: list[str]
    """Ids of the second set whose content the first set has under another id."""


def merge(
    ours: Sequence[CaseData], theirs: Sequence[CaseData], base: Sequence[CaseData] | None = None
) -> Merged:
    """Return the cases of both sets.

    If both contain a case and differ, the side that changed it since `base` wins.  Without a base, or if both
    changed it, it is a conflict, and ours remains.  A case that one side removed from the base stays removed,
    unless the other side changed it.
    """
    old, mine, other = (_by_id(cases) for cases in (base or (), ours, theirs))
    hashes = {content_hash(case) for case in ours if case.get("conversation")}
    merged = Merged([], [], [])
    for name in sorted({*mine, *other}):
        one, two, before = mine.get(name), other.get(name), old.get(name)
        if one is None and two is not None and before is None and content_hash(two) in hashes:
            merged.same.append(name)
        elif one == two or two == before:
            _keep(merged, one)
        elif one == before:
            _keep(merged, two)
        else:
            # Both changed it, or one changed it and the other removed it.
            if (one is not None and two is not None) or before is not None:
                merged.conflicts.append(name)
            _keep(merged, one if one is not None else two)
    return merged


def _keep(merged: Merged, case: CaseData | None) -> None:
    if case is not None:
        merged.cases.append(case)


def _by_id(cases: Sequence[CaseData]) -> Mapping[str, CaseData]:
    return {case["evalId"]: case for case in cases}
