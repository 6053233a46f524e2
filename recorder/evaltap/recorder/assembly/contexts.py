"""Context messages of a session, written once and again only when they change.

A system prompt is the same in every turn of a session, and often longer than the conversation. The
preceding conversation is context too, unless the log has it as turns of the session.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass

from evaltap.recorder.telemetry.spans import canonical_bytes
from evaltap.schemas.data import CaseData, JsonObject

MAX_SESSIONS = 10_000
FIELD = "contextMessages"
_DIGEST_BYTES = 4
"""Bytes of digest per text of a session: enough to distinguish it from the others."""
_MAX_DIGESTS = 64 * _DIGEST_BYTES


@dataclass(slots=True)
class _SessionContext:
    """What the log already has of a session."""

    instructions: bytes = b""
    instructions_turn: str = ""
    """The turn with the current instructions."""
    message_digests: bytes = b""
    """Digests of the latest messages of user and agent."""
    history_turn: str = ""
    """The last turn with a preceding conversation."""
    history_digests: bytes = b""
    """Digests of that conversation."""


class ContextMemory:
    """Remembers, by digest, the context messages on the log for each session; used by one thread.

    Bounded: when a session is evicted, the one idle the longest, its context is written once more.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._known: OrderedDict[str, _SessionContext] = OrderedDict()

    def trimmed(self, case: CaseData) -> CaseData:
        """Return the case without context messages that an earlier turn of its session has."""
        (turn, *_) = case["actualConversation"]
        known = self._known.get(_session(case))
        if FIELD not in turn or known is None:
            return case
        turn_id = str(turn.get("invocationId"))
        instructions, conversation = _parts(turn)
        if known.instructions == _digest(instructions) and known.instructions_turn != turn_id:
            instructions = []
        history_digests = known.history_digests if known.history_turn == turn_id else b""
        marked = ((one, _message_digest(one)) for one in conversation)
        conversation = [
            one
            for one, digest in marked
            if _has(history_digests, digest) or not _has(known.message_digests, digest)
        ]
        kept = {**turn, FIELD: [*instructions, *conversation]}
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
        known = self._known.setdefault(session, _SessionContext())
        instructions, conversation = _parts(turn)
        if instructions and known.instructions != (digest := _digest(instructions)):
            known.instructions, known.instructions_turn = digest, turn_id
        if new := _new(known.message_digests, conversation):
            known.history_turn, known.history_digests = turn_id, new
        messages = [turn[name] for name in ("userContent", "finalResponse") if turn.get(name)]
        known.message_digests = (
            known.message_digests + new + _new(known.message_digests, messages if of_spans else [])
        )[-_MAX_DIGESTS:]
        self._known.move_to_end(session)
        if len(self._known) > self._max_sessions:
            self._known.popitem(last=False)


def _session(case: CaseData) -> str:
    return f"{case.get('evalSetId') or ''}\0{case['evalId']}"


def _parts(turn: CaseData) -> tuple[list[JsonObject], list[JsonObject]]:
    """Return the instructions and the preceding conversation."""
    messages = turn.get(FIELD) or []
    conversation = [one for one in messages if one.get("role") in ("user", "assistant")]
    instructions = [one for one in messages if one.get("role") not in ("user", "assistant")]
    return instructions, conversation


def _digest(instructions: list[JsonObject]) -> bytes:
    return hashlib.sha256(canonical_bytes(instructions)).digest()[:16]


def _message_digest(message: JsonObject) -> bytes:
    text = f"{message.get('role')}\0{' '.join(str(message.get('content')).split())}"
    return hashlib.blake2b(
        text.encode("utf-8", "backslashreplace"), digest_size=_DIGEST_BYTES
    ).digest()


def _has(digests: bytes, digest: bytes) -> bool:
    at = digests.find(digest)
    while at >= 0 and at % _DIGEST_BYTES:
        at = digests.find(digest, at + 1)
    return at >= 0


def _new(digests: bytes, messages: list[JsonObject]) -> bytes:
    """Return the digests of the messages that are not among `digests`."""
    found = (_message_digest(one) for one in messages)
    return b"".join(digest for digest in found if not _has(digests, digest))
