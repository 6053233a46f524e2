"""The identity of cases in the tables, and lines of files that are not cases."""

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias

from evaltap.evaluator.cases.outline import LazyCase
from evaltap.schemas.data import Json
from evaltap.schemas.wire.record import recording_name


class BadLine(NamedTuple):
    """A line of a file, or a row of a table, that is not a usable case; it becomes a dead letter."""

    path: str
    offset: int
    """The byte offset of a line, or the number of a row, counting from 0."""
    message: str
    raw: bytes
    """The original line, or the row as JSON."""


CaseKey: TypeAlias = tuple[str, str, str]
"""App name, eval set id, eval id."""


def key_of_case(app_name: str, eval_set_id: str, eval_id: str) -> str:
    """Return SQL for the `case_key` of a case, which is a hash, of SQL for its names."""
    return f"md5_number_lower(concat_ws(chr(31), {app_name}, {eval_set_id}, {eval_id}))"


CASE_KEY: Final = key_of_case("app_name", "eval_set_id", "eval_id")
"""The `case_key` of a row that names a case."""


THIS_CASE: Final = "app_name = $app AND eval_set_id = $eval_set AND eval_id = $eval_id"
"""SQL: whether a row is of the case whose parameters `named` returns."""


def named(case: CaseKey) -> dict[str, object]:
    """Return a case as parameters of a statement."""
    return dict(zip(("app", "eval_set", "eval_id"), case, strict=True))


def is_about(feedback: str, case: str) -> str:
    """Return SQL for whether a row of feedback is about a case, given the names of both tables.

    Feedback may not know the application, nor of which recording it is: then it names the session as its
    eval set.  The view `v_feedback` says the same.
    """
    return (
        f"{feedback}.eval_id = {case}.eval_id"
        f" AND {feedback}.eval_set_id IN ({case}.eval_set_id, {case}.eval_id)"
        f" AND {feedback}.app_name IN ('', {case}.app_name)"
    )


def case_key(case: CaseKey) -> int:
    """Return what `key_of_case` computes."""
    digest = hashlib.md5("\x1f".join(case).encode(), usedforsecurity=False).digest()
    return int.from_bytes(digest[8:], "little")


class FirstPosition(NamedTuple):
    """The first position of a case in the store: none of its rows is older."""

    landed_seq: int
    landed_at: datetime


OLDEST = FirstPosition(0, datetime.min)
ChangedCases: TypeAlias = Mapping[CaseKey, FirstPosition]


class CaseIdentity(NamedTuple):
    """Identifies a case revision in the tables.  A case of a file has no turn revisions: all are 1."""

    app_name: str
    eval_set_id: str
    eval_id: str
    revision: int = 1
    turn_revisions: Sequence[int] = ()


def case_identity(case: Mapping[str, Json], eval_set_id: str) -> CaseIdentity:
    """Return the identity of a case that has not landed.

    `eval_set_id` applies to a case without its own.  Repeats of a case are distinguished by their
    `source.run`, within a version.
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
    """Return whether a case was sampled with a probability below 1, so that it represents more traffic."""
    if isinstance(case, LazyCase):
        source = case.outline.source
        chance = source.inclusionProbability if source else None
    else:
        chance = (case.get("source") or {}).get("inclusionProbability")
    return isinstance(chance, int | float) and chance < 1


def traffic_weight(case: Mapping[str, Json]) -> float | None:
    """Return the number of turns of the traffic that a curated case represents; None for other cases."""
    if isinstance(case, LazyCase):  # a curated case has no outline
        return None
    curation = (case.get("source") or {}).get("curation")
    weight = curation.get("weight") if isinstance(curation, Mapping) else None
    if isinstance(weight, bool) or not isinstance(weight, int | float):
        return None
    return float(weight) if 0 <= weight < math.inf else None


NamedCase: TypeAlias = tuple[CaseIdentity, Mapping[str, Json]]
