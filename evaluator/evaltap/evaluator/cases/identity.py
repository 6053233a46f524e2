"""The identity of cases in the tables, and lines of files that are not cases."""

import hashlib
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Final, NamedTuple, TypeAlias


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
