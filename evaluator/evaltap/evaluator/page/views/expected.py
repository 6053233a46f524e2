"""Use recorded behaviour as expected: show the difference to the current expectation, and confirm."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Final

import orjson

from evaltap.evaluator.cases.evalsets.content import message_text
from evaltap.evaluator.cases.identity import THIS_CASE, CaseKey, named
from evaltap.evaluator.curation.review.queue import (
    DEFAULT_QUEUE,
    Wanted,
    add_items,
    decide,
    edited,
    item,
    undo,
)
from evaltap.evaluator.page.changes import CursorWriter
from evaltap.evaluator.page.request import (
    PageAnswer,
    PageRequest,
    case_link,
    key_of,
    key_text,
    problem,
)
from evaltap.evaluator.reports.diff_lines import DiffLine, lines_of
from evaltap.evaluator.reports.model import Limits, TurnEvidence
from evaltap.evaluator.reports.reader import read_case
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData
from evaltap.schemas.errors import InputError

_LIMITS: Final = Limits(cases=1, turns=100, calls=200, text=20_000)
_TURNS: Final = f"""
SELECT invocation_id, turn_revision, actual_json FROM latest_turns WHERE {THIS_CASE}
ORDER BY started_at NULLS FIRST, first_landed_seq
"""
_ITEMS: Final = f"""
SELECT item_id, invocation_id FROM v_review_items WHERE {THIS_CASE} AND state <> 'outdated'
ORDER BY added_at
"""
_STANDS: Final = f"""
SELECT invocation_id, verdict, state, reviewers, reviewed_at,
       (SELECT count(*) FROM v_review_decisions d
        WHERE d.item_id = i.item_id AND d.reviewer = $who AND d.action IN ('approve', 'edit')) > 0 AS mine
FROM v_review_items i WHERE {THIS_CASE} AND verdict IS NOT NULL ORDER BY reviewed_at
"""


@dataclass(frozen=True, slots=True)
class Decided:
    """A reviewer's decision about a turn."""

    place: int
    good: bool
    state: str
    reviewers: tuple[str, ...]
    reviewed_at: datetime
    mine: bool
    """Whether the reader can undo it."""


@dataclass(frozen=True, slots=True)
class TurnToExpect:
    """A turn in the form in which it would be expected."""

    place: int
    evidence: TurnEvidence
    lines: tuple[DiffLine, ...]
    answer: str
    tools_json: str
    decided: Decided | None


@dataclass(frozen=True, slots=True)
class ExpectedPage:
    key: CaseKey
    key_text: str
    turns: tuple[TurnToExpect, ...]
    seen: str
    """Identifies the turns that the reader sees; the form sends it back."""
    case_href: str


def decided_turns(reader: StoreReader, request: PageRequest, key: CaseKey) -> tuple[Decided, ...]:
    """Return the current decisions about the turns of a case, in order."""
    statement = named(key)
    if not (rows := reader.rows(_STANDS, statement | {"who": request.person.name})):
        return ()
    places = {row[0]: place for place, row in enumerate(reader.rows(_TURNS, statement), 1)}
    found = {
        turn: Decided(places[turn], verdict == "good", state, tuple(by), at, mine)
        for turn, verdict, state, by, at, mine in rows
        if turn in places
    }
    return tuple(sorted(found.values(), key=lambda one: one.place))


def view(reader: StoreReader, request: PageRequest) -> PageAnswer:
    """Read the turns of a case in the form in which they would be expected; 404 if none has landed."""
    key = request.key
    if not (turns := reader.rows(_TURNS, named(key))):
        return problem(404, f"No turn of a case {key[2]!r} has landed in {request.store_path}.")
    by_place = {one.place: one for one in decided_turns(reader, request, key)}
    report = read_case(reader, key, references=request.references, limits=_LIMITS)
    shown = []
    for place, (evidence, row) in enumerate(zip(report.evidence, turns, strict=False), 1):
        actual: CaseData = orjson.loads(row[2])
        tools = orjson.dumps(actual.get("tools") or [], option=orjson.OPT_INDENT_2).decode()
        texts = message_text(actual.get("finalResponse")), tools
        lines = lines_of(evidence.steps)
        shown.append(TurnToExpect(place, evidence, lines, *texts, by_place.get(place)))
    data = ExpectedPage(key, key_text(key), tuple(shown), _seen(turns), _case_href(key, request))
    return PageAnswer("expected.html.j2", "Use as expected", data)


def _seen(turns: Sequence[tuple[object, ...]]) -> str:
    named = "\0".join(f"{turn}\0{revision}" for turn, revision, _ in turns)
    return hashlib.sha256(named.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _case_href(key: CaseKey, request: PageRequest) -> str:
    """Return the page of a case, within the list from which the reader came."""
    return case_link(key, q=request["q"], sort=request["sort"])


# -- what reviewers do --------------------------------------------------------------------------


def use(writer: CursorWriter, request: PageRequest) -> str:
    """Approve the chosen turns as recorded, or as edited in the form."""
    key = key_of(request["case"])
    if not (turns := writer.rows(_TURNS, named(key))):
        raise InputError(f"no turn of a case {key[2]!r} has landed")
    if request["seen"] != _seen(turns):
        raise InputError("the case has a new turn or revision; reload the page and check it again")
    chosen = [place for place in range(1, len(turns) + 1) if request[f"turn-{place}"]]
    if not chosen:
        raise InputError("no turn chosen; choose the turns that went as they should")
    afters = {place: _after(request, place, orjson.loads(turns[place - 1][2])) for place in chosen}
    prepared = []
    for place in chosen:
        answer, tools = afters[place]
        as_done = answer is None and tools is None
        for item_id in _items(writer, key, turns[place - 1][0], request):
            # The form shows what was recorded, not what another reviewer made of it.
            one = replace(item(writer, item_id), after=None)
            prepared.append((one, None if as_done else edited(one, answer=answer, tools=tools)))
    for one, after in prepared:
        action = "approve" if after is None else "edit"
        decide(writer, one, request.person.name, action, after=after)
    return _case_href(key, request)


def _after(request: PageRequest, place: int, actual: CaseData) -> tuple[str | None, Any]:
    """Return answer and tools from the form if they differ from the recording."""
    answer: str | None = request[f"answer-{place}"].replace("\r\n", "\n")
    if not answer or answer == message_text(actual.get("finalResponse")).strip():
        answer = None
    try:
        tools = orjson.loads(request[f"tools-{place}"]) if request[f"tools-{place}"] else None
    except ValueError as error:
        raise InputError(
            f"tools of turn {place}: invalid JSON ({error}); expected a list of calls"
        ) from None
    return answer, None if tools == (actual.get("tools") or []) else tools


def _items(writer: CursorWriter, key: CaseKey, turn: str, request: PageRequest) -> list[str]:
    """Return the items of a turn in all queues; add the turn to a queue if there is none."""

    def found() -> list[str]:
        rows = writer.rows(_ITEMS, named(key))
        return [item_id for item_id, invocation_id in rows if invocation_id == turn]

    if not found():
        wanted = Wanted(*key, turn, f"used as expected by {request.person.name}", alone=True)
        add_items(writer, [wanted], DEFAULT_QUEUE)
    return found()


def take_back(writer: CursorWriter, request: PageRequest) -> str:
    """Undo the reader's approvals of a case."""
    key = key_of(request["case"])
    rows = writer.rows(
        f"SELECT item_id FROM v_review_decisions WHERE {THIS_CASE} AND reviewer = $who"
        " AND action IN ('approve', 'edit')",
        named(key) | {"who": request.person.name},
    )
    for (item_id,) in rows:
        undo(writer, request.person.name, item_id)
    return request.path if request["next"] else _case_href(key, request)
