"""Compare two eval sets, case by case and field by field, and merge two with a common ancestor."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import orjson

from evaltap.evaluator.cases.evalsets.content import content_hash, content_of, user_texts
from evaltap.schemas.data import CaseData, Json

_LONGEST: Final = 400


@dataclass(frozen=True, slots=True)
class FieldChange:
    """A field that differs; None means that it is missing."""

    place: str
    before: Json
    after: Json

    def data(self) -> dict[str, Json]:
        return {"field": self.place, "before": self.before, "after": self.after}


@dataclass(frozen=True, slots=True)
class CaseChange:
    """A case that is in both sets with differences."""

    eval_id: str
    fields: tuple[FieldChange, ...]
    content: bool
    """Whether input, expectation, rubrics or context differ, not only recording and provenance."""


@dataclass(frozen=True, slots=True)
class Difference:
    """The cases in only one set, and the cases that differ, by id."""

    added: tuple[CaseData, ...]
    removed: tuple[CaseData, ...]
    changed: tuple[CaseChange, ...]
    renamed: tuple[tuple[str, str], ...]
    """Old and new ids of cases with the same content."""
    same: int

    def __bool__(self) -> bool:
        return bool(self.added or self.removed or self.changed or self.renamed)

    def data(self) -> dict[str, object]:
        return {
            "added": [_short(case) for case in self.added],
            "removed": [_short(case) for case in self.removed],
            "changed": [
                {
                    "eval_id": one.eval_id,
                    "content": one.content,
                    "fields": [field.data() for field in one.fields],
                }
                for one in self.changed
            ],
            "renamed": [{"before": before, "after": after} for before, after in self.renamed],
            "same": self.same,
        }


def difference(
    before: Sequence[CaseData], after: Sequence[CaseData], *, only_content: bool = False
) -> Difference:
    """Return the changes from one set to the other; the order of cases does not matter.

    `only_content` leaves out recordings and provenance, and names fields as `content_of` does.
    """
    old = {case["evalId"]: case for case in before}
    new = {case["evalId"]: case for case in after}
    gone = {content_hash(case): name for name, case in old.items() if name not in new}
    renamed, added = [], []
    for name, case in sorted(new.items()):
        if name in old:
            continue
        # Only expectations identify a case by its content: recordings of one question differ.
        same = gone.pop(content_hash(case), None) if case.get("conversation") else None
        if same is None:
            added.append(case)
        else:
            renamed.append((same, name))
    left = {name for name, _ in renamed}
    removed = [case for name, case in sorted(old.items()) if name not in new and name not in left]
    both = ((name, old[name], new[name]) for name in sorted(old.keys() & new.keys()))
    changed = [one for case in both if (one := _changed(*case, only_content=only_content))]
    same_count = len(old.keys() & new.keys()) - len(changed)
    return Difference(tuple(added), tuple(removed), tuple(changed), tuple(renamed), same_count)


def _changed(
    name: str, before: CaseData, after: CaseData, *, only_content: bool
) -> CaseChange | None:
    content = content_hash(before) != content_hash(after)
    if only_content:
        before, after = content_of(before), content_of(after)
    fields = tuple(_changes("", before, after))
    return CaseChange(name, fields, content) if fields else None


def _changes(place: str, before: Json, after: Json) -> Iterator[FieldChange]:
    if (
        isinstance(before, Mapping)
        and isinstance(after, Mapping)
        and not _null_apart(before, after)
    ):
        for key in sorted({*before, *after}):
            inner = f"{place}.{key}" if place else key
            yield from _changes(inner, before.get(key), after.get(key))
    elif isinstance(before, list) and isinstance(after, list) and not _null_at_end(before, after):
        for number in range(max(len(before), len(after))):
            yield from _changes(
                f"{place}[{number}]",
                before[number] if number < len(before) else None,
                after[number] if number < len(after) else None,
            )
    elif before != after or isinstance(before, bool) != isinstance(after, bool):
        yield FieldChange(place, before, after)


def _null_apart(before: Mapping[str, Json], after: Mapping[str, Json]) -> bool:
    """Return whether only one object has a key that is null, which is not the same as missing."""
    return any({**before, **after}[key] is None for key in before.keys() ^ after.keys())


def _null_at_end(before: list[Json], after: list[Json]) -> bool:
    return None in (before[len(after) :] + after[len(before) :])


def _short(case: CaseData) -> dict[str, Json]:
    return {"eval_id": case["evalId"], "text": " / ".join(user_texts(case))[:_LONGEST]}


def shown(value: Json) -> str:
    """Return a value on one line, truncated if it is long."""
    if value is None:
        return "(none)"
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    line = " ".join(text.split())
    return line if len(line) <= _LONGEST else f"{line[:_LONGEST]}… ({len(line):,} characters)"


class Merged(NamedTuple):
    """The cases of both sets, and the ids that both sides changed differently."""

    cases: list[CaseData]
    conflicts: list[str]
    same: list[str]
    """Ids that only the second set has, of content that the merged set has under another id."""


def merge(
    ours: Sequence[CaseData], theirs: Sequence[CaseData], base: Sequence[CaseData] | None = None
) -> Merged:
    """Return the cases of both sets, in no order.

    If both contain a case and differ, the side that changed it since `base` wins.  Without a base, or if both
    changed it, it is a conflict, and ours remains.  A case that one side removed from the base stays removed,
    unless the other side changed it, which is a conflict, too: then the changed case remains.
    """
    old, mine, other = (_by_id(cases) for cases in (base or (), ours, theirs))
    new = other.keys() - mine.keys() - old.keys()
    merged = Merged([], [], [])
    for name in sorted({*mine, *other} - new):
        one, two, before = mine.get(name), other.get(name), old.get(name)
        if _equal(one, two) or _equal(two, before):
            kept = one
        elif _equal(one, before):
            kept = two
        else:
            # Both changed it, or one changed it and the other removed it.
            merged.conflicts.append(name)
            kept = two if one is None else one
        if kept is not None:
            merged.cases.append(kept)
    hashes = {content_hash(case) for case in merged.cases if case.get("conversation")}
    for name in sorted(new):
        if content_hash(other[name]) in hashes:
            merged.same.append(name)
        else:
            merged.cases.append(other[name])
    return merged


def _equal(one: CaseData | None, two: CaseData | None) -> bool:
    return not any(_changes("", one, two))


def _by_id(cases: Sequence[CaseData]) -> Mapping[str, CaseData]:
    return {case["evalId"]: case for case in cases}
