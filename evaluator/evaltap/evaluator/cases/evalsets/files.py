"""Set files for git: sorted by id, one value per line, texts unescaped, the same bytes for the same cases."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import orjson

from evaltap.schemas.data import CaseData, Json
from evaltap.schemas.errors import FormatError
from evaltap.schemas.files import canonical
from evaltap.schemas.files.content import eval_set_name, is_json_lines, write_bytes
from evaltap.schemas.files.documents import iter_cases, read_set_fields
from evaltap.schemas.files.validation import describe, parse
from evaltap.schemas.formats.case import EvalSet


@dataclass(frozen=True, slots=True)
class SetFile:
    eval_set_id: str
    cases: tuple[CaseData, ...]
    fields: Mapping[str, Json] = field(default_factory=dict)
    """The set's name, description, and fields that evaltap does not know."""


def read_set(path: Path) -> SetFile:
    """Read an eval set or JSON Lines of cases.

    Raises FormatError for a repeated id, for invalid provenance, and for a case nested too deeply to be
    compared.
    """
    fields = {} if is_json_lines(path) else read_set_fields(path)
    cases, name = [], fields.get("evalSetId") or ""
    for case in iter_cases(path):
        _check_provenance(case, str(path))
        _check_depth(case, str(path))
        own = case.get("evalSetId") or ""
        name = name or own
        cases.append({key: value for key, value in case.items() if key != "evalSetId"})
    check_ids(cases, str(path))
    return SetFile(name or eval_set_name(path), tuple(cases), fields)


def _check_provenance(case: CaseData, path: str) -> None:
    # `source` may contain anything; the parts that evaltap reads must have the shape that it
    # writes.
    found, place = case, f"case {case['evalId']!r}: "
    for name in ("source", "curation", "from"):
        value = found.get(name)
        place += name if name == "source" else f".{name}"
        if value is None:
            return
        if not isinstance(value, dict):
            raise FormatError(
                f"found {describe(value)}; expected an object, as `evaltap curate` writes it",
                path=path,
                place=place,
            )
        found = value


def _check_depth(case: CaseData, path: str) -> None:
    try:
        orjson.dumps(case)
    except TypeError:
        raise FormatError(
            "nested too deeply; expected at most 250 levels",
            path=path,
            place=f"case {case['evalId']!r:.40}",
        ) from None


def check_ids(cases: Iterable[CaseData], path: str) -> None:
    """Raise FormatError that names ids shared by several cases."""
    counts = Counter(case["evalId"] for case in cases)
    if twice := sorted(name for name, count in counts.items() if count > 1):
        raise FormatError(
            f"several cases have the evalId {', '.join(map(repr, twice[:5]))}; give each its own, or"
            " keep one",
            path=path,
        )


def set_bytes(
    eval_set_id: str, cases: Sequence[CaseData], fields: Mapping[str, Json] | None = None
) -> bytes:
    """Return a set file: cases sorted by id, no times, and non-ASCII letters and < unescaped."""
    check_ids(cases, eval_set_id)
    ordered = sorted(cases, key=lambda case: case["evalId"])
    own = {"evalSetId": eval_set_id, "evalCases": ordered}
    document = parse(EvalSet, {"name": eval_set_id, **(fields or {}), **own})
    return canonical.dumps(document.model_dump(by_alias=True), readable=True)


def write_set(path: Path, existing: SetFile, cases: Sequence[CaseData]) -> bool:
    """Write a set with other cases if the content of the file changes; return whether it did."""
    content = set_bytes(existing.eval_set_id, cases, existing.fields)
    if path.is_file() and path.read_bytes() == content:
        return False
    write_bytes(path, content)
    return True
