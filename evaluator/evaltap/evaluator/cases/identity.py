"""Values that a file or a table has in place of an eval case; they are kept as dead letters."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from evaltap.evaluator.cases.outline import LazyCase
from evaltap.schemas.formats.model import Json
from evaltap.schemas.wire.record import recording_name


class BadLine(NamedTuple):
    """A line of a file, or a row of a table, that holds no usable case."""

    path: str
    offset: int
    """The byte where a line begins, the number of a row from 0."""
    message: str
    raw: bytes
    """The line as it is in the file, the row as JSON."""


CaseKey: TypeAlias = tuple[str, str, str]
"""App name, eval set id, eval id."""


class FirstPosition(NamedTuple):
    """The first position of a case in the file: none of its rows is older."""

    landed_seq: int
    landed_at: datetime


OLDEST = FirstPosition(0, datetime.min)
ChangedCases: TypeAlias = Mapping[CaseKey, FirstPosition]


class CaseIdentity(NamedTuple):
    """What names a case revision in the tables; no turn revisions means a file, all of them 1."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int = 1
    turn_revisions: Sequence[int] = ()


def case_identity(case: Mapping[str, Json], eval_set_id: str) -> CaseIdentity:
    """Return how a case that has not landed is named in the tables.

    `eval_set_id` is for one without its own.  Repeats of a case are told apart by their `source.run`, within
    a version.
    """
    if isinstance(case, LazyCase):
        known = case.outline
        app_name, named, eval_id = case.app_name, known.evalSetId or eval_set_id, known.evalId or ""
        run, version = (known.source.run, known.source.version) if known.source else ("", "")
    else:
        app_name = (case.get("sessionInput") or {}).get("appName") or ""
        named, eval_id = case.get("evalSetId") or eval_set_id, case.get("evalId") or ""
        source = case.get("source") or {}
        run, version = source.get("run"), source.get("version")
    recording = recording_name(version, run) if run else ""
    return CaseIdentity(app_name, f"{named}@{recording}" if recording else named, eval_id)


def is_sampled(case: Mapping[str, Json]) -> bool:
    """Tell whether a case stands for more traffic than itself: it was kept by a chance below 1."""
    if isinstance(case, LazyCase):
        source = case.outline.source
        chance = source.inclusionProbability if source else None
    else:
        chance = (case.get("source") or {}).get("inclusionProbability")
    return isinstance(chance, int | float) and chance < 1


NamedCase: TypeAlias = tuple[CaseIdentity, Mapping[str, Json]]
