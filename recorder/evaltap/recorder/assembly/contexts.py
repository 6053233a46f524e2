"""What a session's turns are told besides the conversation, written once and again when it changes.

A system prompt is the same in every turn of a session, and often longer than all that is said.
"""

import hashlib
from collections import OrderedDict

from evaltap.recorder.telemetry.spans import canonical_json
from evaltap.schemas.data import CaseData

MAX_SESSIONS = 10_000
FIELD = "contextMessages"


class ContextMemory:
    """Knows by digest the context messages that each session has on the log; used by one thread.

    Bounded: of the session idle for longest they are written once more.
    """

    def __init__(self, max_sessions: int = MAX_SESSIONS) -> None:
        self._max_sessions = max_sessions
        self._known: OrderedDict[str, tuple[bytes, str]] = OrderedDict()

    def trimmed(self, case: CaseData) -> CaseData:
        """Return the case without context messages that an earlier turn of its session has."""
        turns = case["actualConversation"]
        if not any(FIELD in turn for turn in turns):
            return case
        session, digest, turn_id = _identity(case)
        known, owner = self._known.get(session, (b"", ""))
        if known != digest or owner == turn_id:
            return case
        turns = [{key: turn[key] for key in turn if key != FIELD} for turn in turns]
        return {**case, "actualConversation": turns}

    def note(self, case: CaseData) -> None:
        """Take note of a case that was written, as it was before it was trimmed."""
        if not any(FIELD in turn for turn in case["actualConversation"]):
            return
        session, digest, turn_id = _identity(case)
        before = self._known.get(session)
        if before is None or before[0] != digest:
            self._known[session] = digest, turn_id
        self._known.move_to_end(session)
        if len(self._known) > self._max_sessions:
            self._known.popitem(last=False)


def _identity(case: CaseData) -> tuple[str, bytes, str]:
    """Return the session, the digest of its context messages, and the turn that has them."""
    turn = case["actualConversation"][0]
    written = canonical_json(turn.get(FIELD)).encode("utf-8", "backslashreplace")
    session = f"{case.get('evalSetId') or ''}\0{case['evalId']}"
    return session, hashlib.sha256(written).digest()[:16], str(turn.get("invocationId"))
