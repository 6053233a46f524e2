"""Context messages of a session, written once and again only when they change.

A system prompt is the same in every turn of a session, and often longer than the conversation. The
preceding conversation is context too, unless the log has it as turns of the session.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any  # of JSON

from evaltap.recorder.telemetry.spans import canonical_json
from evaltap.schemas.data import CaseData

MAX_SESSIONS = 10_000
FIELD = "contextMessages"
_MARK = 4
"""Bytes of digest per text of a session: enough to tell it from the others."""
_SAID = 64 * _MARK


@dataclass(slots=True)
class _Known:
    """What the log already has of a session."""

    instructions: bytes = b""
    owner: str = ""
    """The turn with the current instructions."""
    said: bytes = b""
    """Digests of the latest messages of user and agent."""
    teller: str = ""
    """The last turn with a preceding conversation."""
    told: bytes = b""
    """Digests of that conversation."""


class ContextMemory:
    """Remembers, by digest, the context messages on the log for each session; used by one thread.

    Bounded: when a session is evicted, the one idle the longest, its context is written once more.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._known: OrderedDict[str, _Known] = OrderedDict()

    def trimmed(self, case: CaseData) -> CaseData:
        """Return the case without context messages that an earlier turn of its session has."""
        (turn, *_) = case["actualConversation"]
        known = self._known.get(_session(case))
        if FIELD not in turn or known is None:
            return case
        turn_id = str(turn.get("invocationId"))
        instructions, said = _parts(turn)
        if known.instructions == _digest(instructions) and known.owner != turn_id:
            instructions = []
        told = known.told if known.teller == turn_id else b""
        marked = ((one, _mark(one)) for one in said)
        said = [one for one, mark in marked if _has(told, mark) or not _has(known.said, mark)]
        kept = {**turn, FIELD: [*instructions, *said]}
        if not kept[FIELD]:
            del kept[FIELD]
        return {**case, "actualConversation": [kept, *case["actualConversation"][1:]]}

    def note(self, case: CaseData) -> None:
        """Remember a written case, as it was before trimming."""
        (turn, *_) = case["actualConversation"]
        of_spans = (case.get("source") or {}).get("convention")
        if FIELD not in turn and not of_spans:
            return
        session, turn_id = _session(case), str(turn.get("invocationId"))
        known = self._known.setdefault(session, _Known())
        instructions, said = _parts(turn)
        if instructions and known.instructions != (digest := _digest(instructions)):
            known.instructions, known.owner = digest, turn_id
        if new := _new(known.said, said):
            known.teller, known.told = turn_id, new
        spoken = [turn[name] for name in ("userContent", "finalResponse") if turn.get(name)]
        known.said = (known.said + new + _new(known.said, spoken if of_spans else []))[-_SAID:]
        self._known.move_to_end(session)
        if len(self._known) > self._max_sessions:
            self._known.popitem(last=False)


def _session(case: CaseData) -> str:
    return f"{case.get('evalSetId') or ''}\0{case['evalId']}"


def _parts(turn: CaseData) -> tuple[list[Any], list[Any]]:
    """Return the instructions and the preceding conversation."""
    messages = turn.get(FIELD) or []
    said = [one for one in messages if one.get("role") in ("user", "assistant")]
    return [one for one in messages if one not in said], said


def _digest(instructions: list[Any]) -> bytes:
    written = canonical_json(instructions).encode("utf-8", "backslashreplace")
    return hashlib.sha256(written).digest()[:16]


def _mark(message: Any) -> bytes:
    text = f"{message.get('role')}\0{' '.join(str(message.get('content')).split())}"
    return hashlib.blake2b(text.encode("utf-8", "backslashreplace"), digest_size=_MARK).digest()


def _has(marks: bytes, mark: bytes) -> bool:
    at = marks.find(mark)
    while at >= 0 and at % _MARK:
        at = marks.find(mark, at + 1)
    return at >= 0


def _new(marks: bytes, messages: list[Any]) -> bytes:
    """Return the digests of the messages that are not among `marks`."""
    found = (_mark(one) for one in messages)
    return b"".join(mark for mark in found if not _has(marks, mark))
