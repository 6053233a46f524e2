"""Turns held until their session is decided: redacted, on disk, in a file no one else can open.

It is an unnamed SQLite database, whose file is gone with the process.
"""

import sqlite3
from typing import NamedTuple

import orjson

from evaltap.recorder.copying import readable
from evaltap.schemas.data import CaseData

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
    """Stores cases by session, in order of arrival; used by one thread."""

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
