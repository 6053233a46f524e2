"""The log of changes: reviews, expected turns, baskets, sets, exports, people; with undo."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final, NamedTuple

import orjson

from evaltap.evaluator.cases.evalsets.content import content_hash
from evaltap.evaluator.cases.evalsets.files import read_set, write_set
from evaltap.evaluator.curation.review.queue import decide, item
from evaltap.evaluator.page import changes
from evaltap.evaluator.page.changes import Change, CursorWriter
from evaltap.evaluator.page.request import PageAnswer, PageRequest, case_link, link
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData, JsonObject
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

PER_PAGE: Final = 50
_CHANGES: Final = """
WITH done AS (
  SELECT review_id AS id, 'review' AS kind, reviewer AS who, NULL AS role, action, '' AS target,
         app_name, eval_set_id, eval_id, invocation_id, undoes, reviewed_at AS done_at,
         comment, labels, NULL::JSON AS detail
  FROM reviews WHERE action <> 'claim'
  UNION ALL
  SELECT change_id, 'change', who, role, action, target, app_name, eval_set_id, eval_id, NULL, undoes,
         changed_at, NULL, NULL, detail
  FROM changes
)
SELECT *, id IN (SELECT undoes FROM done WHERE undoes IS NOT NULL) AS undone
FROM done WHERE ($who::VARCHAR = '' OR who = $who) AND ($id::VARCHAR = '' OR id = $id)
ORDER BY done_at DESC, id LIMIT $most OFFSET $at
"""
_WORDS: Final[Mapping[str, str]] = {
    "approve": "approved",
    "edit": "edited and approved",
    "reject": "rejected",
    "skip": "skipped",
    "undo": "undid",
    "pick": "added to the basket",
    "drop": "removed from the basket",
    "export": "exported",
    "add_to_set": "added to",
    "take_from_set": "removed from",
    "invite": "invited",
    "log_in": "logged in",
    "end_session": "logged out",
    "remove_person": "removed",
}
_OPPOSITE: Final = {"pick": "drop", "drop": "pick"}


class _Done(NamedTuple):
    """A row of `_CHANGES`: a review of a turn, or another change."""

    change_id: str
    kind: str
    who: str
    role: str | None
    action: str
    target: str
    app_name: str | None
    eval_set_id: str | None
    eval_id: str | None
    invocation_id: str | None
    undoes: str | None
    done_at: datetime
    comment: str | None
    labels: list[str] | None
    detail: str | None
    undone: bool

    def details(self) -> JsonObject:
        """Return the details that were stored with the change."""
        found: JsonObject = orjson.loads(self.detail) if self.detail else {}
        return found


@dataclass(frozen=True, slots=True)
class ChangeLine:
    change_id: str
    at: datetime
    who: str
    role: str
    words: str
    about: str
    """The changed file, person or case."""
    turn: str
    more: str
    """A comment, labels, or a number of cases."""
    href: str
    undone: bool
    may_undo: bool


@dataclass(frozen=True, slots=True)
class ChangesPage:
    """The content of the page, newest first."""

    lines: tuple[ChangeLine, ...]
    who: str
    people: tuple[str, ...]
    newer_href: str
    older_href: str


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read a page of the changes of all people or of one person."""
    at, who = request.count("at"), request["who"]
    rows = _rows(reader, who=who, at=at, most=PER_PAGE + 1)
    people = reader.rows("SELECT reviewer FROM reviews UNION SELECT who FROM changes ORDER BY 1")
    data = ChangesPage(
        tuple(_line(row, request) for row in rows[:PER_PAGE]),
        who,
        tuple(name for (name,) in people),
        link("/changes", who=who, at=max(at - PER_PAGE, 0) or None) if at else "",
        link("/changes", who=who, at=at + PER_PAGE) if len(rows) > PER_PAGE else "",
    )
    return PageAnswer("changes.html.j2", "Changes", data)


def _rows(
    reader: StoreReader, *, who: str = "", change_id: str = "", at: int = 0, most: int = 1
) -> list[_Done]:
    found = reader.rows(_CHANGES, {"who": who, "id": change_id, "at": at, "most": most})
    return [_Done(*row) for row in found]


def _line(row: _Done, request: PageRequest) -> ChangeLine:
    key = row.app_name or "", row.eval_set_id or "", row.eval_id or ""
    return ChangeLine(
        change_id=row.change_id,
        at=row.done_at,
        who=row.who,
        role=row.role or "",
        words=_WORDS.get(row.action, row.action),
        about=row.target or key[2],
        turn=row.invocation_id or "",
        more=_more(row, row.details()),
        href=case_link(key) if key[2] else "",
        undone=row.undone,
        may_undo=_may_undo(row, request),
    )


def _more(row: _Done, detail: JsonObject) -> str:
    cases = detail.get("cases")
    count = len(cases) if isinstance(cases, list) else cases
    parts = [
        "" if count is None else counted(count, "case"),
        *(str(detail.get(name) or "") for name in ("content", "format", "role")),
        ", ".join(row.labels or ()),
        row.comment or "",
    ]
    return " · ".join(filter(None, parts))


def _may_undo(row: _Done, request: PageRequest) -> bool:
    """Return whether the reader may undo a change: their own, and as admin also those of others."""
    reversible = row.action in ("approve", "edit", "reject", "skip", "add_to_set", *_OPPOSITE)
    mine = row.who == request.person.name
    others = request.person.may("admin") and row.action not in _OPPOSITE
    return reversible and not row.undone and (mine or others)


# -- taking back --------------------------------------------------------------------------------


def undo(writer: CursorWriter, request: PageRequest) -> str:
    """Undo one change; return to the list."""
    if not (rows := _rows(writer, change_id=request["change"])):
        raise InputError(f"unknown change {request['change']!r}")
    (row,) = rows
    if not _may_undo(row, request):
        why = "it is already undone" if row.undone else "it is not yours, or cannot be undone"
        raise InputError(f"cannot undo this change: {why}")
    if row.kind == "review":
        named = "SELECT item_id FROM reviews WHERE review_id = ?"
        (item_id,) = writer.column(named, [row.change_id])
        decide(writer, item(writer, item_id), request.person.name, "undo", undoes=row.change_id)
    elif row.action == "add_to_set":
        _take_from_set(writer, request, row)
    else:
        key = row.app_name or "", row.eval_set_id or "", row.eval_id or ""
        back = Change(_OPPOSITE[row.action], key, undoes=row.change_id)
        changes.write(writer, request.person, [back])
    return request.path if request["next"] else "/changes"


def _take_from_set(writer: CursorWriter, request: PageRequest, row: _Done) -> None:
    """Remove the added cases from their set file, except cases that were edited there."""
    path = next((one for one in request.sets if one.name == row.target), None)
    if path is None:
        raise InputError(f"{row.target}: the page was started without this set; add it with --set")
    added = set(row.details()["cases"])
    there = read_set(path)
    gone = [case["evalId"] for case in there.cases if case["evalId"] in added and _unedited(case)]
    if not gone:
        raise InputError(f"{path}: none of these cases is still in it unchanged")
    kept = [case for case in there.cases if case["evalId"] not in gone]
    write_set(path, there, kept)
    back = Change("take_from_set", target=path.name, detail={"cases": gone}, undoes=row.change_id)
    changes.write(writer, request.person, [back])


def _unedited(case: CaseData) -> bool:
    curation = (case.get("source") or {}).get("curation") or {}
    return curation.get("contentHash") == content_hash(dict(case))
