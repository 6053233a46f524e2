"""What a file or a table holds in the place of an eval case; kept as a dead letter."""

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, TypeAlias

from evaltap.evaluator.cases.outline import LazyCase
from evaltap.schemas.formats.model import Json


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

    `eval_set_id` is for one without its own.
    """
    if isinstance(case, LazyCase):
        known = case.outline
        return CaseIdentity(case.app_name, known.evalSetId or eval_set_id, known.evalId or "")
    app_name = (case.get("sessionInput") or {}).get("appName") or ""
    return CaseIdentity(app_name, case.get("evalSetId") or eval_set_id, case.get("evalId") or "")


NamedCase: TypeAlias = tuple[CaseIdentity, Mapping[str, Json]]
