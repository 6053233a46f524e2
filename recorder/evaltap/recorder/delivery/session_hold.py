"""Holds finished turns until their session is decided: whole sessions are kept or dropped."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final, NamedTuple

import orjson

from evaltap.recorder.copying import readable
from evaltap.recorder.delivery.case_processor import CaseProcessor
from evaltap.recorder.faults import DropCaseError
from evaltap.recorder.sampling.sampler import Decision, is_revision
from evaltap.recorder.sampling.sessions import Session, SessionSampler
from evaltap.schemas.data import CaseData

MAX_HELD_TURNS: Final = 100_000
MAX_HELD_BYTES: Final = 256 << 20
"""Maximum bytes held on disk; beyond it the sessions idle the longest are decided."""

_TABLE = """
CREATE TABLE held (
    number     INTEGER PRIMARY KEY,
    session    TEXT NOT NULL,
    turn       TEXT NOT NULL,
    place      INTEGER,
    reason     TEXT NOT NULL,
    keep       REAL NOT NULL,
    value      BLOB NOT NULL,
    UNIQUE (session, turn)
)
"""


class HeldTurn(NamedTuple):
    """A held turn: its case, its index in the session (None: unknown), its own sampling probability."""

    case: CaseData
    place: int | None
    own: tuple[str, float]


class HeldTurns:
    """Stores cases by session, in order of arrival; used by one thread.

    They are on disk, redacted, in an unnamed SQLite database that no one else can open.
    """

    def __init__(self) -> None:
        self.turns = 0
        self.bytes = 0
        self._connection: sqlite3.Connection | None = None

    def add(self, session: str, turn: str, held: HeldTurn) -> bool:
        """Hold a turn, replacing an earlier revision. Return whether the turn is new."""
        value = _dumped(held.case)
        connection = self._open()
        before = connection.execute(
            "SELECT length(value) FROM held WHERE session = ? AND turn = ?", (session, turn)
        ).fetchone()
        connection.execute(
            "INSERT INTO held (session, turn, place, reason, keep, value) VALUES (?, ?, ?, ?, ?, ?)"
            " ON CONFLICT (session, turn) DO UPDATE SET value = excluded.value,"
            " reason = CASE WHEN excluded.keep > keep THEN excluded.reason ELSE reason END,"
            " keep = max(keep, excluded.keep)",
            (session, turn, held.place, *held.own, value),
        )
        self.turns += before is None
        self.bytes += len(value) - (before[0] if before else 0)
        return before is None

    def pop(self, session: str) -> list[HeldTurn]:
        """Remove and return the turns of a session."""
        connection = self._open()
        rows = connection.execute(
            "SELECT value, place, reason, keep FROM held WHERE session = ? ORDER BY number",
            (session,),
        ).fetchall()
        connection.execute("DELETE FROM held WHERE session = ?", (session,))
        self.turns -= len(rows)
        self.bytes -= sum(len(value) for value, *_ in rows)
        return [
            HeldTurn(orjson.loads(value), place, (reason, keep))
            for value, place, reason, keep in rows
        ]

    def discard(self) -> int:
        """Discard all turns and return how many; the next one is held in a new file."""
        self.close()
        discarded, self.turns, self.bytes = self.turns, 0, 0
        return discarded

    def close(self) -> None:
        """Close the file."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def _open(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = sqlite3.connect("", isolation_level=None, check_same_thread=False)
            self._connection.execute("PRAGMA journal_mode = OFF")
            self._connection.execute("PRAGMA synchronous = OFF")
            self._connection.execute(_TABLE)
        return self._connection


def _dumped(case: CaseData) -> bytes:
    try:
        return orjson.dumps(case)
    except TypeError:  # a lone surrogate, or a number beyond 64 bits
        return orjson.dumps(readable(case))


class SessionHold:
    """Replaces `CaseProcessor.process` when rules keep whole sessions; used by one thread.

    `dropped` is called with the reason for each turn that is dropped when its session is decided.
    """

    def __init__(
        self, processor: CaseProcessor, sampler: SessionSampler, dropped: Callable[[str], None]
    ) -> None:
        self._processor = processor
        self._sampler = sampler
        self._dropped = dropped
        self._held = HeldTurns()
        self._ready: dict[str, Session] = {}
        """Sessions whose decision is final."""

    @property
    def turns(self) -> int:
        """How many turns are held."""
        return self._held.turns

    def add(self, case: CaseData) -> None:
        """Hold a case; raises DropCaseError when no rule can keep it or the hold is full."""
        if self._is_beyond(2):  # decided turns do not reach the log
            raise DropCaseError("log_unavailable")
        described = self._processor.described(case)
        session, own = self._sampler.note(described)
        if session is None:
            raise DropCaseError(own.reason)
        private = self._processor.private(described)
        turn = str(described["actualConversation"][0].get("invocationId"))
        place = None if is_revision(described) else session.turns
        held = HeldTurn(private, place, (own.reason, own.probability))
        with self._discarding():
            if self._held.add(session.eval_id, turn, held):
                session.waiting += 1
        self._note(session)

    def note_negative(self, eval_id: str) -> None:
        """Note negative feedback: it may keep the held turns of its session."""
        if (session := self._sampler.note_negative(eval_id)) is not None:
            self._note(session)

    def decided(self, *, everything: bool = False) -> Iterator[list[CaseData]]:
        """Yield the kept cases, ready to write, session by session; count the others as dropped.

        With `everything`, no more turns will come, so each session is decided as it stands.
        """
        while self._ready:
            yield self._decide(self._ready.popitem()[1])
        for session in self._sampler.due():
            yield self._decide(session)
        while everything or self._is_beyond(1):
            if (oldest := self._sampler.oldest()) is None:
                return
            yield self._decide(oldest)

    def discard(self) -> int:
        """Discard all held turns and return how many."""
        return self._held.discard()

    def _is_beyond(self, times: int) -> bool:
        held = self._held
        return held.turns >= times * MAX_HELD_TURNS or held.bytes >= times * MAX_HELD_BYTES

    @contextmanager
    def _discarding(self) -> Iterator[None]:
        """Count the held turns as lost when the disk is full: SQLite cannot use such a file any more."""
        try:
            yield
        except sqlite3.Error as error:
            for _ in range(self._held.discard()):
                self._dropped("internal_error")
            raise DropCaseError("internal_error", error) from error

    def _note(self, session: Session) -> None:
        if self._sampler.is_final(session):
            self._ready[session.eval_id] = session

    def _decide(self, session: Session) -> list[CaseData]:
        self._ready.pop(session.eval_id, None)
        self._sampler.settle(session)
        kept = []
        with self._discarding():
            turns = self._held.pop(session.eval_id)
        for held in turns:
            decision = self._sampler.decision(session, held.own)
            if decision.kept:
                kept.append(_with_decision(held, decision, session.dropped))
                session.dropped = 0
            else:
                session.dropped += held.place is not None
                self._dropped(decision.reason)
        return kept


def _with_decision(held: HeldTurn, decision: Decision, dropped: int) -> CaseData:
    source = {
        **held.case.get("source", {}),
        "samplingReason": decision.reason,
        "inclusionProbability": decision.probability,
    }
    if held.place is not None:
        source["turnNumber"] = held.place
    case = {**held.case, "source": source}
    return _mark_gap(case, dropped) if dropped else case


def _mark_gap(case: CaseData, dropped: int) -> CaseData:
    """Mark the first turn after dropped ones of its session, with their number."""
    (turn,) = case["actualConversation"]
    marked = {
        **turn,
        "capture": {**turn.get("capture", {}), "earlierTurns": "missing"},
        "telemetry": {**turn.get("telemetry", {}), "earlierTurnsMissing": dropped},
    }
    return {**case, "actualConversation": [marked]}
