"""Read the landed sessions of chosen turns, and create cases from them."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import orjson

from evaltap.evaluator.cases.contexts import without_repeats
from evaltap.evaluator.cases.evalsets.content import message_text, plain_turns
from evaltap.evaluator.cases.identity import CaseKey
from evaltap.evaluator.cases.turn import EARLIER_TURNS
from evaltap.evaluator.curation.picks import TurnKey
from evaltap.evaluator.curation.recipe import Unit
from evaltap.evaluator.ingest.landing.cases import DocumentReader, LandedTurns
from evaltap.evaluator.scoring.results.references import attach_kept
from evaltap.evaluator.store.database import STORE, sql
from evaltap.evaluator.store.queries import StoreReader
from evaltap.schemas.data import CaseData, Json


@dataclass(frozen=True, slots=True)
class LandedTurn:
    invocation_id: str
    trace_id: str
    actual: CaseData
    expected: CaseData | None
    """The reference that was part of the recording, or that it was scored with."""
    verdicts: tuple[tuple[str, str, str], ...]
    """Metric, digest and status."""
    correction: str
    """The answer that a user requested instead."""
    earlier: tuple[str, ...] = ()
    """Ids of turns that paused, and that this one continues."""


@dataclass(frozen=True, slots=True)
class Session:
    key: CaseKey
    revision: int
    header: CaseData
    turns: tuple[LandedTurn, ...]

    def until(self, invocation_ids: Iterable[str]) -> "Session":
        """Return the session up to and including the last of some turns."""
        wanted = set(invocation_ids)
        last = max(
            at
            for at, turn in enumerate(self.turns)
            if not wanted.isdisjoint((turn.invocation_id, *turn.earlier))
        )
        return Session(self.key, self.revision, self.header, self.turns[: last + 1])

    def whole(self) -> "Session":
        """Return the session without turns that paused, and that the next one continues.

        Recorders in several processes, as where a person's approval reaches another one, record both.
        """
        found: list[LandedTurn] = []
        for turn in self.turns:
            earlier = turn.earlier
            if found and _continues(turn.actual, found[-1].actual):
                before = found.pop()
                earlier = (*before.earlier, before.invocation_id)
            found.append(replace(turn, earlier=earlier))
        return replace(self, turns=tuple(found))

    @property
    def has_holes(self) -> bool:
        """Whether earlier turns are known to be missing."""
        return any(EARLIER_TURNS in (turn.actual.get("capture") or {}) for turn in self.turns)


_HEADER: Final = ("contextMessages", "rubrics")
_NO_CASE: Final = "SELECT app_name, eval_set_id, eval_id FROM cases LIMIT 0"


def read_sessions(store: StoreReader, keys: Iterable[TurnKey]) -> dict[CaseKey, Session]:
    """Return the sessions of some turns, by name."""
    named = sorted({key[:3] for key in keys})
    with store.scratch(_NO_CASE, rows=named) as chosen:
        newest = sql(STORE, "newest")
        rows = store.rows(sql(__name__, "sessions").format(newest=newest, chosen=chosen))
    turns = [
        LandedTurns((app, name, eval_id), [turn["position"] for turn in of_case])
        for app, name, eval_id, *_, of_case in rows
    ]
    found = {}
    for landed, row, texts in zip(turns, rows, DocumentReader(store).read(turns), strict=True):
        *_, revision, header, of_case = row
        read = tuple(map(_turn, of_case, texts.actual, texts.expected))
        found[landed.case] = Session(landed.case, revision, orjson.loads(header), read)
    return dict(sorted(found.items()))


def with_kept_references(
    store: StoreReader, sessions: Mapping[CaseKey, Session]
) -> dict[CaseKey, Session]:
    """Return the sessions with the references of their scores, where the recording has none itself."""
    cases: dict[CaseKey, CaseData] = {
        key: {"evalId": key[2], "actualConversation": [turn.actual for turn in session.turns]}
        for key, session in sessions.items()
        if not any(turn.expected for turn in session.turns)
    }
    attach_kept(store, cases)
    found = dict(sessions)
    for key, case in cases.items():
        kept = [*(case.get("conversation") or ()), *[None] * len(found[key].turns)]
        turns = (
            replace(turn, expected=one) for turn, one in zip(found[key].turns, kept, strict=False)
        )
        found[key] = replace(found[key], turns=tuple(turns))
    return found


def _continues(turn: CaseData, before: CaseData) -> bool:
    """Return whether a turn has the question of the one before, and the result of a call that it awaited."""
    asked = message_text(turn.get("userContent"))
    if not asked or asked != message_text(before.get("userContent")) or before.get("finalResponse"):
        return False
    awaited, returned = _calls(before, ended=False), _calls(turn, ended=True)
    return not awaited.isdisjoint(returned)


def _calls(turn: CaseData, *, ended: bool) -> set[tuple[object, object]]:
    """Return names and ids of a turn's calls that have returned or failed, or of those that have not."""
    tools = turn.get("tools") or ()
    return {
        (one["name"], one.get("id"))
        for one in tools
        if ended == ("result" in one or "error" in one)
    }


def _turn(row: dict[str, Any], actual: str, expected: str | None) -> LandedTurn:
    return LandedTurn(
        row["invocation_id"],
        row["trace_id"] or "",
        orjson.loads(actual),
        orjson.loads(expected) if expected else None,
        tuple((one["metric"], one["digest"], one["status"]) for one in row["verdicts"]),
        row["correction"] or "",
    )


def recorded_case(session: Session, unit: Unit) -> CaseData:
    """Return a case of a session without telemetry; before a single turn, messages become its context."""
    case: dict[str, Json] = {"evalId": session.key[2], "evalMode": "trace"}
    # Cases without it cannot be scored, even if neither an app nor a user was recorded.
    case["sessionInput"] = session.header.get("sessionInput") or {}
    for name in _HEADER:
        if session.header.get(name):
            case[name] = session.header[name]
    turns = plain_turns(without_repeats([turn.actual for turn in session.turns]))
    if unit == "turn":
        case["evalId"] += f"#{session.turns[-1].invocation_id}"
    if unit == "session" or len(turns) == 1:
        return case | {"actualConversation": turns}
    messages = [
        turn[side]
        for turn in turns[:-1]
        for side in ("userContent", "finalResponse")
        if turn.get(side)
    ]
    context = [*(turns[0].get("contextMessages") or []), *messages]
    last = {**turns[-1], "invocationId": "1", "contextMessages": context}
    return case | {"actualConversation": [last]}


def provenance(session: Session, invocation_ids: Sequence[str], **more: Json) -> dict[str, Json]:
    """Return the origin of a case and why it was picked; this is not part of its content hash."""
    app, name, eval_id = session.key
    digests = sorted({digest for turn in session.turns for _, digest, _ in turn.verdicts})
    return {
        "recipe": more["recipe"],
        "labels": more["labels"],
        "from": {
            "appName": app,
            "evalSetId": name,
            "evalId": eval_id,
            "invocationIds": list(invocation_ids),
            "traceIds": sorted({turn.trace_id for turn in session.turns if turn.trace_id}),
            "revision": session.revision,
        },
        "weight": more["weight"],
        "members": more["members"],
        "metricDigests": digests,
    }
