"""The review queue: one turn at a time, decided by keyboard; the judge's verdict is hidden until then."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson

from evaltap.evaluator.analysis.filters.choice import Choice
from evaltap.evaluator.analysis.filters.listing import list_page
from evaltap.evaluator.analysis.stats.agreement import Agreement
from evaltap.evaluator.cases.evalsets.content import message_text
from evaltap.evaluator.cases.identity import THIS_CASE, named
from evaltap.evaluator.cases.turn import run_failure
from evaltap.evaluator.curation.review.queue import (
    DECIDED,
    DEFAULT_QUEUE,
    Item,
    Wanted,
    add_items,
    agreement_of,
    decide,
    edited,
    edited_by,
    item,
    next_item,
    undo,
)
from evaltap.evaluator.page.changes import CursorWriter
from evaltap.evaluator.page.request import PageRequest, case_link, link
from evaltap.evaluator.page.views.case import LIMITS
from evaltap.evaluator.page.views.cases import all_of
from evaltap.evaluator.reports.diff_lines import DiffLine, lines_of
from evaltap.evaluator.reports.model import TurnEvidence
from evaltap.evaluator.reports.reader import read_case
from evaltap.evaluator.store.queries import Record, StoreReader
from evaltap.schemas.errors import InputError
from evaltap.schemas.text import counted

MOST_QUEUED: Final = 50
_QUEUES: Final = """
SELECT queue, count(*) FILTER (waiting) AS waiting,
       count(*) FILTER (waiting AND item_id NOT IN (
         SELECT item_id FROM v_review_decisions WHERE reviewer = $who)) AS yours,
       count(*) AS items
FROM v_review_items GROUP BY queue ORDER BY queue
"""
_SAID: Final = f"""
SELECT metric_name, status, score, reason FROM latest_turn_scores
WHERE {THIS_CASE} AND invocation_id = $turn
ORDER BY metric_name
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """The last decided item, and the judges' verdicts on it."""

    item: Item
    action: str
    verdicts: tuple[Record, ...]
    case_href: str


@dataclass(frozen=True, slots=True)
class ReviewPage:
    queues: tuple[Mapping[str, object], ...]
    """Per queue, how many items there are, wait for somebody, and wait for this reviewer (`yours`)."""
    queue: str
    mine: int
    agreement: Agreement
    item: Item | None
    before: tuple[tuple[str, str], ...]
    """The preceding messages of the session: role and text."""
    evidence: TurnEvidence | None
    lines: tuple[DiffLine, ...]
    tools_json: str
    answer: str
    decided: Decided | None
    case_href: str
    failure: str
    """Why the run of the turn failed; empty if it did not."""


def read(reader: StoreReader, request: PageRequest) -> ReviewPage:
    """Return the page of the item `at`, or of the queues."""
    ((mine,),) = reader.rows(
        "SELECT count(*) FROM v_review_decisions WHERE reviewer = $who",
        {"who": request.person.name},
    )
    found = item(reader, request["at"]).seen_by(request.person.name) if request["at"] else None
    evidence = _evidence(reader, request, found) if found else None
    turn = (found.after or found.turn) if found else {}
    return ReviewPage(
        queues=tuple(reader.records(_QUEUES, {"who": request.person.name})),
        queue=request["queue"],
        mine=mine,
        agreement=agreement_of(reader, request["queue"])[0],
        item=found,
        before=_before(found),
        evidence=evidence,
        lines=lines_of(evidence.steps) if evidence else (),
        tools_json=orjson.dumps(turn.get("tools") or [], option=orjson.OPT_INDENT_2).decode(),
        answer=message_text(turn.get("finalResponse")),
        decided=_decided(reader, request),
        case_href=_case_href(found) if found else "",
        failure=(run_failure(found.turn) or "") if found else "",
    )


def _evidence(reader: StoreReader, request: PageRequest, one: Item) -> TurnEvidence | None:
    key = one.app, one.eval_set_id, one.eval_id
    report = read_case(reader, key, references=request.references, limits=LIMITS)
    turns = (turn for turn in report.evidence if turn.invocation_id == one.invocation_id)
    return next(turns, None)


def _before(one: Item | None) -> tuple[tuple[str, str], ...]:
    messages = []
    for turn in one.before if one else ():
        messages.append(("User", message_text(turn.get("userContent"))))
        answer = message_text(turn.get("finalResponse")) or run_failure(turn) or "no answer"
        messages.append(("Answer", answer))
    return tuple(messages)


def _decided(reader: StoreReader, request: PageRequest) -> Decided | None:
    if not request["done"]:
        return None
    try:
        one = item(reader, request["done"])
    except InputError:  # it was erased in the meantime
        return None
    turn = named((one.app, one.eval_set_id, one.eval_id)) | {"turn": one.invocation_id}
    rows = reader.rows(
        "SELECT action FROM v_review_decisions WHERE item_id = $item AND reviewer = $who",
        {"item": one.item_id, "who": request.person.name},
    )
    if not rows:
        return None
    return Decided(one, rows[0][0], tuple(reader.records(_SAID, turn)), _case_href(one))


def _case_href(one: Item) -> str:
    return case_link((one.app, one.eval_set_id, one.eval_id))


# -- what reviewers do --------------------------------------------------------------------------


def start(writer: CursorWriter, request: PageRequest) -> str:
    """Claim the next item; return the redirect target."""
    return _next(writer, request, "")


def act(writer: CursorWriter, request: PageRequest) -> str:
    """Write a decision and claim the next item; return the redirect target."""
    one = edited_by(writer, item(writer, request["item"]), request.person.name)
    action = request["action"]
    if action not in DECIDED:
        raise InputError(f"unknown decision {action!r}; expected one of {', '.join(DECIDED)}")
    labels = [label.strip() for label in request["labels"].split(",") if label.strip()]
    decide(
        writer,
        one,
        request.person.name,
        action,
        after=_after(request, one) if action == "edit" else None,
        labels=labels,
        comment=request["comment"],
    )
    return _next(writer, request, one.item_id)


def _after(request: PageRequest, one: Item) -> Any:
    try:
        tools = orjson.loads(request["tools"]) if request["tools"] else None
    except ValueError as error:
        raise InputError(f"tools: invalid JSON ({error}); expected a list of calls") from None
    return edited(one, answer=request["answer"] or None, tools=tools)


def take_back(writer: CursorWriter, request: PageRequest) -> str:
    """Undo this person's last decision; return to its item."""
    one = undo(writer, request.person.name)
    return link("/review", queue=request["queue"], at=one.item_id)


def add(writer: CursorWriter, request: PageRequest) -> str:
    """Queue the failed turns of picked cases, otherwise their last turn; or those of a filter's cases.

    With `once`, equal turns of different sessions become one item; with `twice`, two people decide on each.
    """
    if not (keys := request.keys):
        page = list_page(
            writer, Choice(all_of(request), traffic=True), MOST_QUEUED, now=request.now
        )
        keys = [(one.app, one.eval_set_id, one.eval_id) for one in page.cases]
    wanted = [
        one._replace(alone=not request["once"], needed=2 if request["twice"] else 1)
        for key in keys
        for one in _wanted(writer, key, request)
    ]
    added = add_items(writer, wanted, request["queue"] or DEFAULT_QUEUE)
    if added.silent and added.silent == len(wanted):
        raise InputError(
            f"nothing was queued: {counted(added.silent, 'turn')} without question and answer, because"
            " their content was not recorded"
        )
    if request["next"]:
        return request.path
    return link("/review", queue=request["queue"])


_TURNS: Final = """
SELECT invocation_id, bool_or(s.status IN ('failed', 'crashed', 'error')) AS bad
FROM latest_turns t LEFT JOIN latest_turn_scores s
  USING (app_name, eval_set_id, eval_id, invocation_id, turn_revision)
WHERE t.app_name = $app AND t.eval_set_id = $eval_set AND t.eval_id = $eval_id
GROUP BY invocation_id, t.started_at, t.first_landed_seq
ORDER BY t.started_at NULLS FIRST, t.first_landed_seq
"""


def _wanted(writer: CursorWriter, key: tuple[str, str, str], request: PageRequest) -> list[Wanted]:
    rows = writer.rows(_TURNS, named(key))
    bad = [turn for turn, failed in rows if failed] or [turn for turn, _ in rows[-1:]]
    return [Wanted(*key, turn, f"picked by {request.person.name}") for turn in bad]


def _next(writer: CursorWriter, request: PageRequest, done: str) -> str:
    one = next_item(writer, request.person.name, request["queue"])
    return link("/review", queue=request["queue"], at=one.item_id if one else None, done=done)
